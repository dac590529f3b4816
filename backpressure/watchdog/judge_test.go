package watchdog

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const us = time.Microsecond

func TestMissedBeatsAtTheBoundary(t *testing.T) {
	for _, c := range []struct {
		silent time.Duration
		want   int
	}{
		{-time.Hour, 0}, {0, 0}, {15 * time.Second, 0}, {15*time.Second + us, 1}, {45 * time.Second, 2}, {45*time.Second + us, 3},
		{60 * time.Second, 3}, {60*time.Second + us, 4},
	} {
		require.Equal(t, c.want, missed(c.silent, 15*time.Second), "%v", c.silent)
	}
	require.Zero(t, missed(time.Hour, 0))
}

func TestJudge(t *testing.T) {
	r := rules{missed: 3, zombie: 10 * time.Minute, handler: time.Minute}
	flowing := Record{Interval: 15 * time.Second, Said: Flowing, Busy: true}
	with := func(change func(*Record)) Record {
		c := flowing
		change(&c)
		return c
	}
	for _, c := range []struct {
		name            string
		record          Record
		silent, watched time.Duration
		verdict         Verdict
		state           State
	}{
		{"flowing", flowing, time.Second, time.Hour, Healthy, Flowing},
		{"a heartbeat that takes a while", flowing, 18750 * time.Millisecond, time.Hour, Healthy, Flowing},
		{"one missed", flowing, 18750*time.Millisecond + us, time.Hour, Late, Flowing},
		{"three missed is not stuck", flowing, 60 * time.Second, time.Hour, Late, Flowing},
		{"more than three is", flowing, 60*time.Second + us, time.Hour, Stuck, Unknown},
		{"not watched for as long", flowing, time.Hour, 60 * time.Second, Undecided, Unknown},
		{"just begun", flowing, time.Hour, 0, Undecided, Unknown},
		{"the store's clock went back", flowing, -time.Hour, 30 * time.Second, Late, Flowing},
		{"the store's clock went back, and long ago", flowing, -time.Hour, 61 * time.Second, Stuck, Unknown},
		{"idle for a day", with(func(r *Record) { r.Said, r.Busy = Idle, false }), 0, time.Hour, Healthy, Idle},
		{"ten minutes is no zombie", with(func(r *Record) { r.Stalled = 10 * time.Minute }), 0, time.Hour, Healthy, Flowing},
		{"more is", with(func(r *Record) { r.Stalled = 10*time.Minute + us }), 0, time.Hour, Zombie, Flowing},
		{"a zombie in a handler", with(func(r *Record) { r.Stalled, r.Running = 11*time.Minute, 11*time.Minute }), 0, time.Hour, Zombie, HandlerTooLong},
		{"a zombie without its lease", with(func(r *Record) { r.Stalled, r.Running, r.Said = 11*time.Minute, 11*time.Minute, LeaseLost }), 0, time.Hour, Zombie, LeaseLost},
		{"a handler at its limit", with(func(r *Record) { r.Running = time.Minute }), 0, time.Hour, Healthy, Flowing},
		{"a handler above it", with(func(r *Record) { r.Running = time.Minute + us }), 0, time.Hour, Healthy, HandlerTooLong},
		{"a gap", with(func(r *Record) { r.Said = WaitingGap }), 0, time.Hour, Healthy, WaitingGap},
		{"parked", with(func(r *Record) { r.Said = Parked }), 0, time.Hour, Healthy, Parked},
		{"a loop that has not turned for three", with(func(r *Record) { r.Quiet = 60 * time.Second }), 0, time.Hour, Healthy, Flowing},
		{"for more", with(func(r *Record) { r.Quiet = 60*time.Second + us }), 0, time.Hour, Stuck, StoppedPolling},
		{"silence before the loop", with(func(r *Record) { r.Quiet = time.Hour }), time.Hour, time.Hour, Stuck, Unknown},
		{"goodbye", with(func(r *Record) { r.Left = true }), 24 * time.Hour, 24 * time.Hour, Gone, Flowing},
		{"it does not know itself", with(func(r *Record) { r.Said = Unknown }), 0, time.Hour, Healthy, Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := r.judge(Entry{"w", c.record}, c.silent, c.watched)
			require.Equal(t, c.verdict, w.Verdict)
			require.Equal(t, c.state, w.State)
			require.NotEmpty(t, w.Reason())
		})
	}
}

func TestWatchCountsOnlyWhatBothClocksSaw(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var w watch
	store, here := begin, begin
	e := Entry{"w", Record{Token: 1, Seq: 1, BeatAt: begin}}
	step := func(s, h time.Duration) time.Duration {
		store, here = store.Add(s), here.Add(h)
		w.answer(store, here, here.Add(20*time.Millisecond))
		return w.silent(&e, 1)
	}
	require.Zero(t, step(0, 0), "nothing was watched yet")
	require.Equal(t, 5*time.Second, step(5*time.Second, 5*time.Second))
	require.Equal(t, 5*time.Second, step(time.Hour, 5*time.Second), "the store's clock jumped ahead")
	require.Equal(t, 10*time.Second, step(5*time.Second, 5*time.Second))
	require.Equal(t, 10*time.Second, step(-8*time.Hour, 5*time.Second), "and back")
	require.Equal(t, 15*time.Second, step(5*time.Second, 5*time.Second))
	require.Equal(t, 15*time.Second, step(time.Hour, 0), "this machine was asleep")
	w.broken()
	require.Equal(t, 15*time.Second, step(5*time.Minute, 5*time.Minute), "the store was away")
	require.Equal(t, 20*time.Second, step(5*time.Second, 5*time.Second))
	require.Equal(t, 22*time.Second, step(2*time.Second, 3*time.Second), "within the slack")

	e.Seq, e.BeatAt = 2, store.Add(3*time.Second)
	require.Equal(t, 2*time.Second, step(5*time.Second, 5*time.Second), "what passed since the heartbeat itself")
	e.Token, e.Seq, e.BeatAt = 2, 1, store.Add(-time.Hour)
	require.Equal(t, 5*time.Second, step(5*time.Second, 5*time.Second), "a heartbeat from before the last round")

	w.forget(2)
	require.Empty(t, w.sightings)
}
