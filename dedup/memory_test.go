package dedup_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/dedup/deduptest"
)

func TestMemoryConforms(t *testing.T) {
	deduptest.Run(t, deduptest.Config{
		New:    func(*testing.T) dedup.Store { return dedup.NewMemory() },
		Bubble: true,
	})
}

func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dedup.NewMemory()
		m.SetLimit(100)
		g := newGuard(t, m, &dedup.Options{Retention: time.Hour})
		for i := range 100 {
			if _, err := g.FirstSeen(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		_, err := g.Claim(t.Context(), dedup.Request{ID: "one more"})
		wantErr(t, err, dedup.ErrFull)
		if first, err := g.FirstSeen(t.Context(), "7"); err != nil || first[0] {
			t.Errorf("a full store forgot an ID: %v, %v", first, err)
		}
		time.Sleep(time.Hour)
		dropped := 0
		for dropped < 100 {
			n, err := m.Sweep(t.Context(), 10)
			if err != nil || n > 10 {
				t.Fatalf("Sweep: %d, %v", n, err)
			}
			dropped += n
		}
		if m.Len() != 0 || dropped != 100 {
			t.Errorf("%d IDs left, %d dropped", m.Len(), dropped)
		}
		wantState(t, claim(t, g, "one more"), dedup.Acquired)
		_, err = m.Sweep(t.Context(), 0)
		wantErr(t, err, dedup.ErrInvalid)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := m.Sweep(ctx, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("Sweep of a cancelled context: %v", err)
		}
	})
}

// Claims of new IDs alone clear what has expired: the store does not grow with
// all that it has ever seen.
func TestMemoryClearsAsItGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dedup.NewMemory()
		g := newGuard(t, m, &dedup.Options{Retention: time.Minute, Lease: time.Second})
		for i := range 60 {
			for j := range 1000 {
				if _, err := g.FirstSeen(t.Context(), fmt.Sprint(i, "-", j)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(10 * time.Second)
		}
		if n := m.Len(); n > 15_000 {
			t.Errorf("%d IDs are held, where 6,000 are within their retention", n)
		}
	})
}

// A store that is full of what has expired has room for new IDs.
func TestMemoryMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dedup.NewMemory()
		m.SetLimit(100)
		g := newGuard(t, m, &dedup.Options{Retention: time.Hour})
		for i := range 100 {
			if _, err := g.FirstSeen(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(48 * time.Hour)
		room := 0
		for i := range 10_000 {
			if _, err := g.FirstSeen(t.Context(), fmt.Sprint("new ", i)); err == nil {
				room++
			}
		}
		if room != 100 {
			t.Errorf("there was room for %d new IDs, want 100", room)
		}
		m.SetLimit(0) // as at first
		wantState(t, claim(t, g, "one more"), dedup.Acquired)
	})
}

// A token rises also when the record is gone and no time has passed, so that the
// old owner cannot settle the new one's claim.
func TestMemoryTokensRiseAfterForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, dedup.NewMemory(), &dedup.Options{Retention: time.Millisecond, Lease: time.Millisecond})
		for range 3 {
			old := claim(t, g, "a")
			if err := g.Forget(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			next := claim(t, g, "a")
			if next.Token <= old.Token {
				t.Errorf("token %d follows %d", next.Token, old.Token)
			}
			wantErr(t, g.Settle(t.Context(), old.Complete(nil)), dedup.ErrStale)
			if err := g.Forget(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Held lists the lowest IDs first and goes on where the page before ended, though
// the table has no order.
func TestMemoryHeldPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, dedup.NewMemory(), &dedup.Options{OnLapse: dedup.Hold, Lease: time.Second})
		other := newGuard(t, dedup.NewMemory(), &dedup.Options{Scope: "other", OnLapse: dedup.Hold, Lease: time.Second})
		const n = 1000
		var want []string
		for i := range n {
			id := fmt.Sprintf("%03x", i*677%4096)
			want = append(want, id)
			wantState(t, claim(t, g, id), dedup.Acquired)
			wantState(t, claim(t, other, id+"!"), dedup.Acquired)
		}
		slices.Sort(want)
		time.Sleep(time.Minute)
		var got []string
		for after := ""; ; {
			page, err := g.Held(t.Context(), after, 7)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range page {
				if c.State != dedup.Unknown || c.Token == 0 || c.Attempt != 1 || c.Age != time.Minute {
					t.Fatalf("listed %+v", c)
				}
				got = append(got, c.ID)
			}
			if len(page) < 7 {
				break
			}
			after = page[len(page)-1].ID
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d IDs are listed, of %d, or in another order", len(got), n)
		}
	})
}

// Sweep goes through the whole store in one call if it may, and in calls of n
// looks at about n records in each, however many parts it has.
func TestMemorySweepGoesThroughAllOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dedup.NewMemory()
		g := newGuard(t, m, &dedup.Options{Retention: time.Minute, Lease: time.Second})
		fill := func(n int, prefix string) {
			for i := range n {
				if _, err := g.FirstSeen(t.Context(), fmt.Sprint(prefix, i)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
		}
		fill(3000, "a")
		if dropped, err := m.Sweep(t.Context(), 1_000_000); err != nil || dropped != 3000 || m.Len() != 0 {
			t.Errorf("dropped %d, %v; %d are left", dropped, err, m.Len())
		}
		fill(64, "b") // few, in a table that was large
		calls := 0
		for ; m.Len() > 0 && calls < 100; calls++ {
			if _, err := m.Sweep(t.Context(), 1000); err != nil {
				t.Fatal(err)
			}
		}
		if calls > 5 {
			t.Errorf("%d calls of Sweep(1000) in a table of 3000 places", calls)
		}
		if dropped, err := m.Sweep(t.Context(), 1000); dropped != 0 || err != nil {
			t.Errorf("of an empty store: %d, %v", dropped, err)
		}
	})
}

// However records come, end, are kept for longer and go, one round of looking finds
// all that have expired, and nothing else.
func TestMemorySweepFindsAllThatExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 20 * time.Second
		type known struct {
			state   dedup.State // Acquired, Done, or zero: released
			token   uint64
			until   time.Time // of the lease
			expires time.Time
		}
		r := rand.New(rand.NewPCG(1, 7))
		m := dedup.NewMemory()
		all := map[string]*known{}
		expired := func(k *known) bool {
			now := time.Now()
			return !now.Before(k.expires) && (k.state != dedup.Acquired || !now.Before(k.until))
		}
		settle := func(s dedup.Settlement, p dedup.Params) {
			t.Helper()
			if errs, err := m.Settle(t.Context(), p, []dedup.Settlement{s}); errs != nil || err != nil {
				t.Fatal(errs, err)
			}
		}
		var asked, dropped uint64
		for round := range 60 {
			for range r.IntN(2000) {
				asked++
				id := fmt.Sprint("id", r.IntN(20_000))
				p := dedup.Params{Scope: "s", Lease: lease, Retention: time.Duration(2+r.IntN(90)) * time.Second, Complete: r.IntN(2) == 0}
				ask := dedup.Ask{Request: dedup.Request{ID: id}}
				binary.BigEndian.PutUint64(ask.Nonce[:], asked)
				claims, err := m.Claim(t.Context(), p, []dedup.Ask{ask})
				if err != nil {
					t.Fatal(err)
				}
				k, now := all[id], time.Now()
				free := k == nil || expired(k) || k.state == 0 || k.state == dedup.Acquired && !now.Before(k.until)
				if free != (claims[0].State == dedup.Acquired) {
					t.Fatalf("round %d: %s is answered %v, free %t", round, id, claims[0].State, free)
				}
				if free {
					k = &known{state: dedup.Acquired, token: claims[0].Token, until: now.Add(lease), expires: now.Add(p.Retention)}
					if p.Complete {
						k.state = dedup.Done
					}
					all[id] = k
					continue
				}
				claim := dedup.Claim{ID: id, Token: k.token}
				switch n := r.IntN(5); {
				case n == 0:
					settle(dedup.Settlement{Kind: dedup.KindForget, ID: id}, p)
					delete(all, id)
				case k.state == dedup.Done && n < 3:
					longer := time.Duration(1+r.IntN(200)) * time.Second
					settle(dedup.Settlement{Kind: dedup.KindRetain, ID: id, Retention: longer}, p)
					if at := now.Add(longer); at.After(k.expires) {
						k.expires = at
					}
				case k.state == dedup.Acquired && n == 1:
					settle(claim.Complete(nil), p)
					k.state, k.expires = dedup.Done, now.Add(p.Retention)
				case k.state == dedup.Acquired && n == 2:
					settle(claim.Release(), p)
					k.state, k.expires = 0, now.Add(p.Retention)
				case k.state == dedup.Acquired && n == 3:
					longer := time.Duration(1+r.IntN(200)) * time.Second
					settle(claim.Extend(longer), p)
					k.until, k.expires = now.Add(longer), now.Add(p.Retention)
				}
			}
			time.Sleep(time.Duration(r.IntN(40)) * time.Second)
			if _, err := m.Sweep(t.Context(), 1<<20); err != nil {
				t.Fatal(err)
			}
			for id, k := range all {
				if expired(k) {
					delete(all, id)
					dropped++
				}
			}
			if got := m.Len(); got != len(all) {
				t.Fatalf("round %d: %d records are left, want %d", round, got, len(all))
			}
		}
		if dropped < 1000 {
			t.Errorf("only %d records expired", dropped)
		}
	})
}
