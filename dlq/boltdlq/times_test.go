package boltdlq_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/dlq"
)

// What has ended stays for its retention to the microsecond, and is gone then.
func TestNothingIsForgottenEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		p := dlq.Params{Retention: time.Hour, Audit: 2 * time.Hour, Capacity: 9}
		put(t, f, letter("k", "a"))
		r := newest(t, f, "a")
		require.NoError(t, joined(f.Change(t.Context(), p, []dlq.Change{
			{Kind: dlq.ChangeDiscard, Nonce: nonce(), Stream: "s", ID: "a", Seq: r.Seq, Actor: "ana"},
		})))
		alarm := func() dlq.Alarm {
			return dlq.Alarm{Nonce: nonce(), Stream: "s", Fingerprint: "aa", Window: 3 * time.Hour}
		}
		_, err := f.Alert(t.Context(), []dlq.Alarm{alarm()})
		require.NoError(t, err)
		for _, hour := range []int{1, 2, 3} {
			time.Sleep(time.Hour - time.Microsecond)
			removed, err := f.Sweep(t.Context(), 1000)
			require.NoError(t, err)
			require.Zero(t, removed, "before %d h", hour)
			first, err := f.Alert(t.Context(), []dlq.Alarm{alarm()})
			require.NoError(t, err)
			require.False(t, first[0])
			time.Sleep(time.Microsecond)
			removed, err = f.Sweep(t.Context(), 1000)
			require.NoError(t, err)
			require.Equal(t, []int{1, 1, 0}[hour-1], removed, "the letter, the entry, and what does not count")
		}
		for name, rows := range contents(t, f) {
			require.Empty(t, rows, name)
		}
	})
}

// A lane that was emptied under its owner's hands stays as long as the lease runs.
func TestAClaimedLaneIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := verified(t, open(t))
		put(t, f, letter("k", "a"))
		a := ask(1)
		a.Lease = 2 * params.Retention
		c, err := f.Claim(t.Context(), a)
		require.NoError(t, err)
		r := c.Claims[0].Record
		require.NoError(t, joined(f.Change(t.Context(), params, []dlq.Change{
			{Kind: dlq.ChangeForget, Nonce: nonce(), Stream: "s", ID: "a", Seq: r.Seq, Actor: "ana"},
		})))
		release := []dlq.Settlement{settlement(dlq.KindRelease, c.Claims[0])}
		for _, want := range []error{nil, dlq.ErrStale} {
			time.Sleep(params.Retention + time.Minute)
			_, err = f.Sweep(t.Context(), 1000)
			require.NoError(t, err)
			require.ErrorIs(t, joined(f.Settle(t.Context(), params, release)), want)
		}
	})
}

// A letter whose turn has come because a person ended the one before it is behind
// those that were due before that, however long it was due itself.
func TestWhatWasBlockedComesBehindWhatWasDue(t *testing.T) {
	for _, k := range []dlq.ChangeKind{dlq.ChangeDiscard, dlq.ChangeReject, dlq.ChangeSkip, dlq.ChangeForget} {
		t.Run(k.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := verified(t, open(t))
				put(t, f, letter("blocked", "first"), letter("blocked", "second"))
				require.NoError(t, joined(f.Settle(t.Context(), params, []dlq.Settlement{settlement(dlq.KindReview, claim(t, f, "first"))})))
				time.Sleep(time.Second)
				put(t, f, letter("free", "due before"))
				time.Sleep(time.Second)
				require.NoError(t, joined(f.Change(t.Context(), params, []dlq.Change{
					{Kind: k, Nonce: nonce(), Stream: "s", ID: "first", Seq: newest(t, f, "first").Seq, Actor: "ana"},
				})))
				claim(t, f, "due before")
				claim(t, f, "second")
			})
		})
	}
}
