package inbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/internal/seed"
)

// The suite of inboxtest holds what a Memory answers. Here is what it keeps.

// TestMemoryAgreesWithItself looks at the whole table after every step of a random
// history, and at the end at what is left when everything is gone.
func TestMemoryAgreesWithItself(t *testing.T) {
	t.Parallel()
	for _, from := range seed.List(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(from, 0))
			m := NewMemory()
			w := &memoryWorker{t: t, m: m, rnd: rnd}
			for n := range 400 {
				w.step()
				if fault := m.fault(); fault != "" {
					t.Fatalf("after %d steps (%s): %s", n+1, seed.Repeat(from), fault)
				}
			}
			w.removeAll()
			if fault := m.fault(); fault != "" {
				t.Fatalf("at the end (%s): %s", seed.Repeat(from), fault)
			}
			if len(m.events)+len(m.keys)+len(m.claimed)+m.records.Len()+m.pending.Len()+m.idle.Len() > 0 || m.counts != [StateUnknown + 1]int{} {
				t.Fatalf("%s: of nothing the table keeps %d events, %d keys (%d claimed, %d idle), %d records (%d pending), the counts %v",
					seed.Repeat(from), len(m.events), len(m.keys), len(m.claimed), m.idle.Len(), m.records.Len(), m.pending.Len(), m.counts)
			}
		})
	}
}

// A memoryWorker does to a Memory what boxes, workers and persons do.
type memoryWorker struct {
	t      *testing.T
	m      *Memory
	rnd    *rand.Rand
	claims []Claim
	n      int
}

func (w *memoryWorker) step() {
	ctx, m, rnd := w.t.Context(), w.m, w.rnd
	p := Params{Retention: time.Duration(1+rnd.IntN(9)) * time.Second, Keep: time.Duration(1+rnd.IntN(9)) * time.Second,
		Bodies: time.Duration(rnd.IntN(3)) * time.Second}
	id := fmt.Sprint("p/", rnd.IntN(30))
	w.n++
	switch rnd.IntN(8) {
	case 0, 1:
		a := Arrival{Event: Event{ID: id, Provider: "p", Key: fmt.Sprint("k", rnd.IntN(4)), Payload: []byte("x")}, Streams: []string{"a", "b"}[:1+rnd.IntN(2)]}
		a.Digest[0], a.Raw, a.Form = byte(rnd.IntN(2)), rnd.IntN(9) == 0, Form(rnd.IntN(3))
		m.Accept(ctx, p, []Arrival{a})
	case 2:
		a := Ask{Stream: []string{"a", "b"}[rnd.IntN(2)], Keys: 2, Events: 3, Bytes: 100, Lease: time.Duration(1+rnd.IntN(5)) * time.Second}
		a.Nonce[0], a.Nonce[1] = byte(w.n), byte(w.n>>8)
		c, _ := m.Claim(ctx, a)
		w.claims = append(w.claims, c.Claims...)
	case 3, 4:
		if len(w.claims) > 0 {
			c := w.claims[len(w.claims)-1-min(rnd.IntN(4), rnd.IntN(len(w.claims)))]
			r := c.Records[rnd.IntN(len(c.Records))]
			s := Settlement{Kind: Kind(1 + rnd.IntN(int(KindUnknown))), Stream: c.Stream, Key: c.Key, Token: c.Token, ID: r.ID, Lease: time.Second}
			s.Delay = time.Duration(rnd.IntN(3)) * time.Second
			m.Settle(ctx, p, []Settlement{s})
		}
	case 5:
		c := Change{Kind: ChangeKind(1 + rnd.IntN(int(ChangeForget))), ID: id, Actor: "a", Reason: "b"}
		c.Nonce[0], c.Nonce[1], c.Nonce[2] = byte(w.n), byte(w.n>>8), 1
		m.Change(ctx, p, []Change{c})
	case 6:
		time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
	case 7:
		m.Sweep(ctx, 1+rnd.IntN(5))
	}
}

// removeAll forgets the events of half of the IDs and lets the rest expire.
func (w *memoryWorker) removeAll() {
	ctx := w.t.Context()
	for n := range 15 {
		w.m.Change(ctx, Params{Retention: time.Second}, []Change{{Kind: ChangeForget, ID: fmt.Sprint("p/", n), Nonce: [16]byte{9, byte(n)}}})
	}
	time.Sleep(time.Minute) // all leases lapse, and all delays end
	for n, s := range []string{"a", "b"} {
		c, _ := w.m.Claim(ctx, Ask{Nonce: [16]byte{8, byte(n)}, Stream: s, Keys: 100, Events: 100, Bytes: 1 << 20, Lease: time.Second})
		for _, c := range c.Claims { // and its owner dies behind the last end
			for _, r := range c.Records {
				s := Settlement{Kind: KindBegin, Stream: c.Stream, Key: c.Key, Token: c.Token, ID: r.ID}
				end := s
				end.Kind = KindDone
				if errs, err := w.m.Settle(ctx, Params{Retention: time.Second}, []Settlement{s, end}); errs != nil || err != nil {
					w.t.Fatal(errs, err)
				}
			}
		}
	}
	for s := StateDone; s <= StateUnknown; s++ { // what stays otherwise
		rs, _ := w.m.List(ctx, Query{State: s, N: 1000})
		for _, r := range rs {
			w.m.Change(ctx, Params{Retention: time.Second}, []Change{
				{Kind: ChangeResolve, ID: r.ID, Seq: r.Seq, Nonce: [16]byte{7, byte(r.Seq), byte(r.Seq >> 8)}},
				{Kind: ChangeRedact, ID: r.ID, Seq: r.Seq, Nonce: [16]byte{6, byte(r.Seq), byte(r.Seq >> 8)}},
			})
		}
	}
	time.Sleep(time.Minute)
	for range 2 {
		if _, err := w.m.Sweep(ctx, 10_000); err != nil {
			w.t.Fatal(err)
		}
	}
}

// fault says what contradicts what in the table; empty if nothing does.
func (t *table) fault() string {
	var counts [StateUnknown + 1]int
	var last uint64
	pending := t.pending.Front()
	for at := t.records.Front(); at != nil; at = at.Next() {
		r := at.Value.(*stored)
		counts[r.State]++
		switch {
		case r.Seq <= last:
			return fmt.Sprintf("record %d is behind record %d", r.Seq, last)
		case t.events[r.ID] == nil:
			return fmt.Sprintf("record %d has no event", r.Seq)
		case (r.State == StatePending) != (r.waited != nil):
			return fmt.Sprintf("record %d is %v and waits: %t", r.Seq, r.State, r.waited != nil)
		case r.State == StatePending && (pending == nil || pending.Value != r):
			return fmt.Sprintf("record %d is not in its place among the pending", r.Seq)
		case r.State == StatePending:
			pending = pending.Next()
		}
		last = r.Seq
	}
	if pending != nil || counts != t.counts {
		return fmt.Sprintf("there are %v records, counted are %v; another is pending: %t", counts, t.counts, pending != nil)
	}
	queued, due, idle, claimed := 0, 0, 0, 0
	for name, k := range t.keys {
		last = 0
		for _, r := range k.queue {
			if r.Seq <= last || r.State != StatePending || r.Stream != name.stream || r.Key != name.key {
				return fmt.Sprintf("record %d (%v) is in the queue of a key behind record %d", r.Seq, r.State, last)
			}
			last = r.Seq
		}
		queued += len(k.queue)
		if (k.place >= 0) != (len(k.queue) > 0) || (k.idle != nil) != (len(k.queue) == 0 && k.until == 0) {
			return fmt.Sprintf("a key with %d records that is claimed until %d is at place %d, and idle: %t", len(k.queue), k.until, k.place, k.idle != nil)
		}
		if k.place >= 0 {
			due++
		}
		if k.idle != nil {
			idle++
		}
		if _, is := t.claimed[k]; is != (k.until != 0) {
			return fmt.Sprintf("a key that is claimed until %d is among the claimed: %t", k.until, is)
		} else if is {
			claimed++
		}
	}
	for _, d := range t.due {
		due -= len(d.keys)
	}
	if queued != t.pending.Len() || due != 0 || idle != t.idle.Len() || claimed != len(t.claimed) {
		return fmt.Sprintf("%d of %d pending records are queued; %d keys too many are due; %d of %d are idle, %d of %d claimed",
			queued, t.pending.Len(), -due, idle, t.idle.Len(), claimed, len(t.claimed))
	}
	return ""
}

// A key whose retention is long does not keep those behind it.
func TestMemorySweepForgetsKeysInAnyOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, ctx := NewMemory(), t.Context()
		for i, retention := range []time.Duration{time.Hour, time.Minute, time.Hour, time.Minute} {
			p := Params{Retention: retention, Keep: retention}
			key := fmt.Sprint("k", i)
			m.Accept(ctx, p, []Arrival{{Event: Event{ID: key, Key: key}, Streams: []string{"s"}}})
			c, err := m.Claim(ctx, Ask{Nonce: [16]byte{byte(i + 1)}, Stream: "s", Keys: 1, Events: 1, Bytes: 1, Lease: time.Hour})
			if err != nil || len(c.Claims) != 1 {
				t.Fatal(c, err)
			}
			s := Settlement{Kind: KindDone, Stream: "s", Key: key, Token: c.Claims[0].Token, ID: key}
			free := s
			free.Kind, free.ID = KindRelease, ""
			if errs, err := m.Settle(ctx, p, []Settlement{s, free}); errs != nil || err != nil {
				t.Fatal(errs, err)
			}
		}
		time.Sleep(time.Minute)
		for range 4 { // one at a time comes round all of them
			m.Sweep(ctx, 1)
		}
		if len(m.keys) != 2 || m.keys[keyName{"s", "k0"}] == nil || m.keys[keyName{"s", "k2"}] == nil {
			t.Errorf("%d keys are left: %v", len(m.keys), m.keys)
		}
		if fault := m.fault(); fault != "" {
			t.Error(fault)
		}
	})
}

// A replay stores nothing new, so a full store does not refuse it.
func TestMemoryReplaysWhenItIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, ctx, p := NewMemory(), context.Background(), Params{Retention: time.Hour, Keep: time.Hour}
		m.SetLimit(1)
		m.Accept(ctx, p, []Arrival{{Event: Event{ID: "a", Key: "k"}, Streams: []string{"s"}}})
		c, _ := m.Claim(ctx, Ask{Nonce: [16]byte{1}, Stream: "s", Keys: 1, Events: 1, Bytes: 1, Lease: time.Hour})
		s := Settlement{Kind: KindDead, Stream: "s", Key: "k", Token: c.Claims[0].Token, ID: "a"}
		if errs, err := m.Settle(ctx, p, []Settlement{s}); errs != nil || err != nil {
			t.Fatal(errs, err)
		}
		if errs, err := m.Change(ctx, p, []Change{{Kind: ChangeReplay, ID: "a", Nonce: [16]byte{1}}}); errs != nil || err != nil {
			t.Fatal(errs, err)
		}
		if _, err := m.Accept(ctx, p, []Arrival{{Event: Event{ID: "b", Key: "k"}, Streams: []string{"s"}}}); err == nil {
			t.Error("a full store took another record")
		}
	})
}
