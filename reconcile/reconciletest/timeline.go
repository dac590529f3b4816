package reconciletest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

// TimelineConfig is [Config] for a [reconcile.TimelineStore].
type TimelineConfig struct {
	New    func(t *testing.T) reconcile.TimelineStore
	Sleep  func(time.Duration)
	Bubble bool

	// Once leaves the subtests of "Twice" out, as Config.Once does.
	Once bool
}

// RunTimeline tests the stores that c.New makes, as [Run] does: with every call sent once,
// and with every call sent twice and the first answer lost.
func RunTimeline(t *testing.T, c TimelineConfig) {
	t.Helper()
	if c.New == nil {
		t.Fatal("reconciletest: TimelineConfig.New is nil")
	}
	for name, twice := range map[string]bool{"Once": false, "Twice": true} {
		if twice && c.Once {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for _, tc := range timelineCases {
				t.Run(tc.name, func(t *testing.T) {
					if c.Sleep == nil {
						t.Parallel()
					}
					if c.Bubble {
						synctest.Test(t, func(t *testing.T) { tc.run(c.env(t, twice)) })
						return
					}
					tc.run(c.env(t, twice))
				})
			}
		})
	}
}

type timelineEnv struct {
	*testing.T
	store reconcile.TimelineStore
	p     reconcile.TimelineParams
	sleep func(time.Duration)
	twice bool
}

func (c TimelineConfig) env(t *testing.T, twice bool) *timelineEnv {
	e := &timelineEnv{T: t, store: c.New(t), sleep: c.Sleep, twice: twice}
	if e.store == nil {
		t.Fatal("reconciletest: TimelineConfig.New returned nil")
	}
	if e.sleep == nil {
		e.sleep = time.Sleep
	}
	e.p = reconcile.TimelineParams{Kind: newKind(), Ahead: time.Minute, Behind: time.Hour, Most: 8, Retention: 24 * time.Hour}
	return e
}

// said makes an observation that happened just now.
func said(event, message, own, status string) reconcile.Observation {
	return reconcile.Observation{Ref: reconcile.Ref{Event: event, Message: message, Own: own}, Status: status,
		Source: "suite", Code: "c", Participant: "p", Said: time.Now().Truncate(time.Second), Digest: [32]byte{1}}
}

// append sends observations, and checks what became of them. When everything is sent
// twice, what was appended is then repeated.
func (e *timelineEnv) append(want reconcile.Appending, os ...reconcile.Observation) {
	e.Helper()
	as, err := e.store.Append(context.Background(), e.p, os)
	if err == nil && e.twice {
		var again []reconcile.Appending
		if again, err = e.store.Append(context.Background(), e.p, os); err == nil {
			for i, a := range again {
				if as[i] == reconcile.Appended && a != reconcile.Repeated || as[i] != reconcile.Appended && a != as[i] {
					e.Fatalf("the append of %q was answered %v, and sent again %v", os[i].Event, as[i], a)
				}
			}
		}
	}
	if err != nil || len(as) != len(os) {
		e.Fatalf("Append of %d: %v, %v", len(os), as, err)
	}
	for i, a := range as {
		if a != want {
			e.Fatalf("the append of %q (%d) was answered %v, want %v", os[i].Event, i, a, want)
		}
	}
}

func (e *timelineEnv) read(ref reconcile.Ref) reconcile.History {
	e.Helper()
	h, err := e.store.Read(context.Background(), e.p, ref)
	if err != nil {
		e.Fatalf("Read: %v", err)
	}
	return h
}

func (e *timelineEnv) want(ref reconcile.Ref, events ...string) []reconcile.Observation {
	e.Helper()
	h := e.read(ref)
	var got []string
	for _, o := range h.Observations {
		got = append(got, o.Event)
	}
	if !slices.Equal(got, events) {
		e.Fatalf("%+v has %q, want %q", ref, got, events)
	}
	return h.Observations
}

var timelineCases = []struct {
	name string
	run  func(e *timelineEnv)
}{
	{"AppendedIsRead", func(e *timelineEnv) {
		o := said("e1", "m", "own", "sent")
		e.append(reconcile.Appended, o)
		got := e.want(reconcile.Ref{Message: "m"}, "e1")[0]
		if got.Received.IsZero() || got.Absurd || !got.At.Equal(o.Said) || !got.Said.Equal(o.Said) {
			e.Fatalf("received %v, at %v, said %v, absurd %v", got.Received, got.At, got.Said, got.Absurd)
		}
		got.Received, got.At, got.Said, o.Said = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		if got != o {
			e.Fatalf("read %+v, appended %+v", got, o)
		}
	}},
	{"RepeatedChangesNothing", func(e *timelineEnv) {
		o := said("e1", "m", "", "sent")
		e.append(reconcile.Appended, o)
		first := e.want(reconcile.Ref{Message: "m"}, "e1")[0]
		e.sleep(2 * time.Millisecond)
		e.append(reconcile.Repeated, o)
		if again := e.want(reconcile.Ref{Message: "m"}, "e1")[0]; !again.Received.Equal(first.Received) {
			e.Fatal("a repetition changed the time of arrival")
		}
	}},
	{"TheFirstStays", func(e *timelineEnv) {
		e.append(reconcile.Appended, said("e1", "m", "", "sent"))
		other := said("e1", "m", "", "failed")
		other.Digest = [32]byte{31: 2}
		e.append(reconcile.Differs, other)
		if got := e.want(reconcile.Ref{Message: "m"}, "e1")[0]; got.Status != "sent" {
			e.Fatalf("it says %q", got.Status)
		}
	}},
	{"ContradictionsAreKept", func(e *timelineEnv) {
		e.append(reconcile.Appended, said("e1", "m", "", "delivered"), said("e2", "m", "", "failed"))
		e.want(reconcile.Ref{Message: "m"}, "e1", "e2")
	}},
	{"OrderOfArrival", func(e *timelineEnv) {
		for _, id := range []string{"c", "a", "b"} {
			e.append(reconcile.Appended, said(id, "m", "", "sent"))
			e.sleep(2 * time.Millisecond)
		}
		e.want(reconcile.Ref{Message: "m"}, "c", "a", "b")
	}},
	{"AbsurdTimes", func(e *timelineEnv) {
		for i, d := range []time.Duration{2 * time.Minute, -2 * time.Hour, 100 * 365 * 24 * time.Hour, -50 * 365 * 24 * time.Hour} {
			o := said(fmt.Sprint("e", i), fmt.Sprint("m", i), "", "sent")
			o.Said = o.Said.Add(d)
			e.append(reconcile.Appended, o)
			got := e.want(reconcile.Ref{Message: o.Message}, o.Event)[0]
			if !got.Absurd || !got.At.Equal(got.Received) || !got.Said.Equal(o.Said) {
				e.Fatalf("%v off: at %v, received %v, said %v, absurd %v", d, got.At, got.Received, got.Said, got.Absurd)
			}
		}
		zero := said("zero", "mz", "", "sent")
		zero.Said = time.Time{}
		e.append(reconcile.Appended, zero)
		if got := e.want(reconcile.Ref{Message: "mz"}, "zero")[0]; !got.Absurd || !got.Said.IsZero() {
			e.Fatalf("no time: %+v", got)
		}
	}},
	{"Correlation", func(e *timelineEnv) {
		e.append(reconcile.Appended, said("queued", "", "order-1", "queued"))
		e.sleep(2 * time.Millisecond)
		e.append(reconcile.Appended, said("accepted", "m1", "order-1", "accepted"))
		e.sleep(2 * time.Millisecond)
		e.append(reconcile.Appended, said("delivered", "m1", "", "delivered"))
		e.sleep(2 * time.Millisecond)
		e.append(reconcile.Appended, said("resent", "m2", "order-1", "accepted"))
		e.append(reconcile.Appended, said("other", "m3", "order-2", "accepted"))
		e.want(reconcile.Ref{Message: "m1"}, "queued", "accepted", "delivered")
		e.want(reconcile.Ref{Event: "delivered"}, "queued", "accepted", "delivered")
		e.want(reconcile.Ref{Own: "order-1"}, "queued", "accepted", "delivered", "resent")
		e.want(reconcile.Ref{Event: "queued"}, "queued", "accepted", "delivered", "resent")
		e.want(reconcile.Ref{Event: "other", Message: "m1", Own: "order-1"}, "other")
		e.want(reconcile.Ref{Own: "nothing"})
		e.want(reconcile.Ref{Message: "order-1"})
		e.want(reconcile.Ref{Event: "m1"})
	}},
	{"KindsAreSeparate", func(e *timelineEnv) {
		e.append(reconcile.Appended, said("e1", "m", "", "sent"))
		e.p.Kind = newKind()
		e.want(reconcile.Ref{Message: "m"})
		e.append(reconcile.Appended, said("e1", "m", "", "sent"))
	}},
	{"OverflowIsCounted", func(e *timelineEnv) {
		for i := range e.p.Most {
			e.append(reconcile.Appended, said(fmt.Sprint("e", i), "m", "", "sent"))
		}
		e.append(reconcile.Overflow, said("x", "m", "", "sent"))
		e.append(reconcile.Overflow, said("y", "m", "", "sent"))
		e.append(reconcile.Repeated, said("e0", "m", "", "sent"))
		if h := e.read(reconcile.Ref{Message: "m"}); len(h.Observations) != e.p.Most || h.Dropped != 2 {
			e.Fatalf("%d kept and %d dropped", len(h.Observations), h.Dropped)
		}
		e.append(reconcile.Appended, said("z", "m2", "", "sent"))
	}},
	{"ForgetErasesWhatReadReturns", func(e *timelineEnv) {
		f, ok := e.store.(reconcile.TimelineForgetter)
		if !ok {
			e.Skip("the store is no TimelineForgetter")
		}
		forget := func(want int, ref reconcile.Ref) {
			e.Helper()
			if n, err := f.Forget(context.Background(), e.p, ref); err != nil || n != want {
				e.Fatalf("forgot %d of %+v, %v; want %d", n, ref, err, want)
			}
			if n, err := f.Forget(context.Background(), e.p, ref); err != nil || n != 0 {
				e.Fatalf("then forgot %d of %+v, %v", n, ref, err)
			}
		}
		forget(0, reconcile.Ref{Message: "m1"})
		append1 := func() {
			e.append(reconcile.Appended, said("queued", "", "order-1", "queued"), said("a1", "m1", "order-1", "accepted"),
				said("d1", "m1", "", "delivered"), said("a2", "m2", "order-1", "accepted"), said("a3", "m3", "order-2", "accepted"))
		}
		append1()
		forget(3, reconcile.Ref{Event: "d1"}) // as for its message
		e.want(reconcile.Ref{Message: "m1"})
		e.want(reconcile.Ref{Event: "d1"})
		e.want(reconcile.Ref{Own: "order-1"}, "a2")
		e.want(reconcile.Ref{Message: "m3"}, "a3")
		forget(1, reconcile.Ref{Own: "order-1"})
		forget(1, reconcile.Ref{Message: "m3"})
		append1() // all are new again
		forget(4, reconcile.Ref{Own: "order-1"})
		e.want(reconcile.Ref{Message: "m2"})
		e.want(reconcile.Ref{Own: "order-2"}, "a3")
		p := e.p
		e.p.Kind = newKind()
		forget(0, reconcile.Ref{Own: "order-2"})
		e.p = p
		e.want(reconcile.Ref{Own: "order-2"}, "a3")
		for i := range e.p.Most {
			e.append(reconcile.Appended, said(fmt.Sprint("e", i), "m", "", "sent"))
		}
		e.append(reconcile.Overflow, said("x", "m", "", "sent"))
		forget(e.p.Most, reconcile.Ref{Message: "m"})
		if h := e.read(reconcile.Ref{Message: "m"}); h.Dropped != 0 {
			e.Fatalf("%d dropped are left", h.Dropped)
		}
		e.append(reconcile.Appended, said("x", "m", "", "sent"))
	}},
	{"ConcurrentAppendsKeepOne", func(e *timelineEnv) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		appended := 0
		o := said("e1", "m", "", "sent")
		for range 8 {
			wg.Go(func() {
				as, err := e.store.Append(context.Background(), e.p, []reconcile.Observation{o})
				mu.Lock()
				defer mu.Unlock()
				if err != nil || len(as) != 1 {
					e.Errorf("Append: %v, %v", as, err)
				} else if as[0] == reconcile.Appended {
					appended++
				}
			})
		}
		wg.Wait()
		if appended != 1 {
			e.Fatalf("appended %d times", appended)
		}
		e.want(reconcile.Ref{Message: "m"}, "e1")
	}},
	{"CancelledContext", func(e *timelineEnv) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err1 := e.store.Append(ctx, e.p, []reconcile.Observation{said("e1", "m", "", "sent")})
		_, err2 := e.store.Read(ctx, e.p, reconcile.Ref{Message: "m"})
		if !errors.Is(err1, context.Canceled) || !errors.Is(err2, context.Canceled) {
			e.Fatalf("%v, %v", err1, err2)
		}
	}},
}
