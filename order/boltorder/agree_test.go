package boltorder_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/pawl-go/pawl/internal/seed"
	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/order/boltorder"
)

// Whatever is done to it, the file answers as the memory store does, to the
// microsecond.
func TestAgreesWithMemory(t *testing.T) { agrees(t, 6) }

func TestLongAgreesWithMemory(t *testing.T) {
	agrees(t, testenv.LongCount(t, 25, 300))
}

func agrees(t *testing.T, seeds int) {
	for _, from := range seed.List(seeds) {
		t.Run(fmt.Sprint(from), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { agree(t, from, 400) })
		})
	}
}

func agree(t *testing.T, seed uint64, steps int) {
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "order.db"), 0o600, &bbolt.Options{NoSync: true, NoGrowSync: true, FreelistType: bbolt.FreelistMapType})
	require.NoError(t, err)
	defer db.Close()
	file, err := boltorder.New(db, nil)
	require.NoError(t, err)
	a := &agreement{T: t, rnd: rand.New(rand.NewPCG(seed, 7)), memory: order.NewMemory(), file: file, late: map[string]bool{}}
	a.p = order.Params{Scope: "s", Start: 1, Window: 8, MaxBuffered: 12, MaxAhead: 40, Abandon: seed%3 == 0, Late: seed%2 == 0,
		GapLook: 20 * time.Millisecond, KeepBody: time.Hour, KeepGaps: time.Hour}
	if seed%5 == 4 {
		a.p.Start = 0
	}
	for n := range steps {
		a.step()
		if n%20 == 0 || n == steps-1 {
			require.NoError(t, db.View(file.Verify), "%v", a.history)
		}
	}
}

type agreement struct {
	*testing.T
	rnd          *rand.Rand
	p            order.Params
	memory, file order.Store
	claims       []order.Claim
	id, n        int
	history      []string
	late         map[string]bool
}

func (a *agreement) step() {
	a.n++
	if len(a.history) > 12 {
		a.history = a.history[1:]
	}
	ctx := a.Context()
	keys := []string{"a", "b"}
	key := keys[a.rnd.IntN(2)]
	switch a.rnd.IntN(12) {
	case 0, 1, 2, 3:
		batch := make([]order.Arrival, 1+a.rnd.IntN(5))
		for i := range batch {
			m := &batch[i]
			m.Key = keys[a.rnd.IntN(2)]
			m.Position = a.near(m.Key)
			if a.rnd.IntN(3) == 0 {
				// An ID that two places have is found at the one or not at all.
				m.ID = fmt.Sprint(m.Key, m.Position)
				if a.rnd.IntN(4) == 0 {
					a.id++
					m.ID = fmt.Sprint("op", a.id-a.rnd.IntN(3))
					m.Assign, m.Position.Epoch = true, 0
				}
			}
			m.Payload = fmt.Append(nil, m.Position, a.rnd.IntN(8) == 0)
			m.Digest[0], m.Digest[1] = byte(m.Position.Number), m.Payload[len(m.Payload)-2]
		}
		got, err := a.file.Push(ctx, a.p, batch)
		want, err2 := a.memory.Push(ctx, a.p, batch)
		require.NoError(a, err)
		require.NoError(a, err2)
		for i := range want {
			a.history = append(a.history, fmt.Sprintf("%v push %s %v %v %v\n", time.Now().UnixMicro(), want[i].Key, want[i].Position, want[i].State, got[i].State))
			if !want[i].Unverified && !got[i].Unverified { // a store may forget sooner or later
				require.Equal(a, want[i].State, got[i].State, "%v %v", batch[i].Message, batch[i].Assign)
			}
			require.Equal(a, want[i].Position, got[i].Position)
			require.Equal(a, want[i].Key, got[i].Key)
		}
	case 4, 5:
		ask := order.Ask{Keys: 2, Messages: 1 + a.rnd.IntN(4), Bytes: 1000, Lease: time.Second}
		ask.Nonce[0], ask.Nonce[1], ask.Nonce[2] = byte(a.rnd.Uint32()), byte(a.rnd.Uint32()), byte(a.rnd.Uint32())
		for range 1 + a.rnd.IntN(2) { // also sent twice
			got, err := a.file.Claim(ctx, a.p, ask)
			want, err2 := a.memory.Claim(ctx, a.p, ask)
			require.NoError(a, err)
			require.NoError(a, err2)
			if len(want.Claims) != len(got.Claims) {
				for _, k := range keys {
					x, _ := a.memory.Account(ctx, "s", k)
					y, _ := a.file.Account(ctx, "s", k)
					a.Logf("%d %v\n%+v\n%+v", a.n, a.history, x, y)
				}
				a.Logf("%+v\n%+v", want, got)
			}
			require.Equal(a, len(want.Claims), len(got.Claims))
			byKey := func(x, y order.Claim) int { return int(x.Key[0]) - int(y.Key[0]) }
			slices.SortFunc(want.Claims, byKey)
			slices.SortFunc(got.Claims, byKey)
			for i := range want.Claims {
				w, g := want.Claims[i], got.Claims[i]
				a.messages(w.Run, g.Run)
				require.Equal(a, len(w.Late), len(g.Late)) // in any order
				require.Equal(a, w.Gap, g.Gap)
				require.Equal(a, []any{w.Key, w.Token, w.Epoch, w.Left}, []any{g.Key, g.Token, g.Epoch, g.Left})
			}
			for _, c := range got.Claims {
				a.history = append(a.history, fmt.Sprintf("%v claim %s %d %d run %d late %d gap %v\n", time.Now().UnixMicro(), c.Key, c.Token, c.Epoch, len(c.Run), len(c.Late), c.Gap != nil))
			}
			a.claims = append(a.claims, got.Claims...)
		}
	case 6, 7, 8, 9:
		if len(a.claims) == 0 {
			return
		}
		c := a.claims[len(a.claims)-1-a.rnd.IntN(min(len(a.claims), 3))]
		a.settle(a.work(c))
	case 10:
		a.settle(a.person(key))
	case 11:
		time.Sleep([]time.Duration{time.Microsecond, 10 * time.Millisecond, 30 * time.Millisecond, 2 * time.Second}[a.rnd.IntN(4)])
	}
	a.compare(key)
}

// near is a position that something may be known of.
func (a *agreement) near(key string) order.Position {
	acc, err := a.memory.Account(a.Context(), a.p.Scope, key)
	require.NoError(a, err)
	p := order.Position{Epoch: 3, Number: 1}
	if len(acc.Ledgers) > 0 {
		l := acc.Ledgers[0]
		p = order.Position{Epoch: l.Epoch, Number: l.Cursor}
		if d := a.rnd.IntN(20); d < 12 {
			p.Number += uint64(d / 2)
		} else if d < 17 && p.Number > uint64(d-11) {
			p.Number -= uint64(d - 11)
		} else if d == 17 {
			p = order.Position{Epoch: p.Epoch + 1, Number: 1 + a.rnd.Uint64N(3)}
		} else if d == 18 {
			p.Epoch -= min(p.Epoch, 1)
		} else if d == 19 {
			p.Number += 60
		}
	}
	return p
}

func (a *agreement) work(c order.Claim) []order.Settlement {
	s := order.Settlement{Key: c.Key, Token: c.Token, Epoch: c.Epoch, Error: "e"}
	at := a.near(c.Key).Number
	if len(c.Run) > 0 && a.rnd.IntN(4) != 0 {
		at = c.Run[0].Position.Number
	}
	switch a.rnd.IntN(12) {
	case 0, 1, 2, 3:
		s.Kind, s.From, s.To = order.KindDeliver, at, at+1+a.rnd.Uint64N(3)
		release := order.Settlement{Kind: order.KindRelease, Key: c.Key, Token: c.Token, Epoch: c.Epoch, Unbegun: a.rnd.IntN(2) == 0}
		return []order.Settlement{s, release}[:1+a.rnd.IntN(2)]
	case 4:
		s.Kind, s.Delay = order.KindRetry, time.Duration(a.rnd.IntN(3))*10*time.Millisecond
	case 5:
		s.Kind = order.KindPark
	case 6:
		s.Kind, s.From, s.To = order.KindVoid, at, at+1+a.rnd.Uint64N(3)
	case 7:
		s.Kind, s.To, s.Reason = order.KindSkip, at+1, order.ReasonTimeout
	case 8:
		s.Kind, s.Delay, s.Alerted, s.Asked = order.KindWait, 10*time.Millisecond, true, a.rnd.IntN(3)
	case 9:
		s.Kind, s.Unbegun = order.KindRelease, a.rnd.IntN(2) == 0
	default:
		if len(c.Late) > 0 {
			m := c.Late[0]
			if once := fmt.Sprint(c.Token, c.Key, m.Position); a.late[once] {
				return nil
			} else {
				a.late[once] = true
			}
			s.Kind = []order.Kind{order.KindLate, order.KindLateRetry, order.KindLatePark}[a.rnd.IntN(3)]
			s.Epoch, s.From, s.To = m.Position.Epoch, m.Position.Number, m.Position.Number+1
			return []order.Settlement{s}
		}
		s.Kind, s.Lease = order.KindExtend, time.Second
	}
	return []order.Settlement{s}
}

func (a *agreement) person(key string) []order.Settlement {
	p := a.near(key)
	s := order.Settlement{Key: key, Epoch: p.Epoch, From: p.Number, To: p.Number + 3, Actor: "me"}
	switch a.rnd.IntN(10) {
	case 0, 1:
		s.Kind = order.KindResume
	case 2:
		s.Kind = order.KindDrop
	case 3, 4:
		s.Kind, s.Resolution = order.KindResolve, order.Resolution(1+a.rnd.IntN(3))
	default:
		s.Kind = order.KindUnordered
	}
	return []order.Settlement{s}
}

func (a *agreement) settle(s []order.Settlement) {
	got, err := a.file.Settle(a.Context(), a.p, s)
	want, err2 := a.memory.Settle(a.Context(), a.p, s)
	require.NoError(a, err)
	require.NoError(a, err2)
	for i := range s {
		a.history = append(a.history, fmt.Sprintf("%v %+v %v\n", time.Now().UnixMicro(), s[i], errAt(want, i)))
		if s[i].Kind != order.KindLateRetry && s[i].Kind != order.KindLatePark { // a store need not know whether it was applied before
			require.Equal(a, errAt(want, i), errAt(got, i), "%+v", s[i])
		}
	}
}

func errAt(errs []error, i int) error {
	if errs == nil {
		return nil
	}
	return errs[i]
}

func (a *agreement) compare(key string) {
	ctx := a.Context()
	want, err := a.memory.Account(ctx, a.p.Scope, key)
	require.NoError(a, err)
	got, err := a.file.Account(ctx, a.p.Scope, key)
	require.NoError(a, err)
	for _, n := range []*order.Arrivals{&want.Arrivals, &got.Arrivals} { // see push
		n.Duplicate, n.Conflict = n.Duplicate+n.Conflict, 0
	}
	require.Equal(a, want, got)
	wantGaps, err := a.memory.Gaps(ctx, a.p.Scope, order.Query{N: 100})
	require.NoError(a, err)
	gotGaps, err := a.file.Gaps(ctx, a.p.Scope, order.Query{N: 100})
	require.NoError(a, err)
	require.Equal(a, wantGaps, gotGaps, "%v", a.history)
	wantParked, err := a.memory.Parked(ctx, a.p.Scope, order.Query{N: 100})
	require.NoError(a, err)
	gotParked, err := a.file.Parked(ctx, a.p.Scope, order.Query{N: 100})
	require.NoError(a, err)
	a.messages(wantParked, gotParked)
	wantTotals, err := a.memory.Totals(ctx, a.p.Scope)
	require.NoError(a, err)
	gotTotals, err := a.file.Totals(ctx, a.p.Scope)
	require.NoError(a, err)
	require.Equal(a, wantTotals, gotTotals, "%v", a.history)
	if len(want.Ledgers) == 0 {
		return
	}
	var places []order.Place
	for _, l := range want.Ledgers {
		for n := l.Cursor - min(l.Cursor-1, uint64(a.p.Window)-1); n <= l.Head; n++ {
			places = append(places, order.Place{Key: key, Position: order.Position{Epoch: l.Epoch, Number: n}})
		}
	}
	wantFound, err := a.memory.Find(ctx, a.p, places)
	require.NoError(a, err)
	gotFound, err := a.file.Find(ctx, a.p, places)
	require.NoError(a, err)
	for i := range places {
		if wantFound[i].State != order.StateSettled { // memory forgets the window of an epoch that has ended
			require.Equal(a, wantFound[i].State, gotFound[i].State, "%v %+v %v", places[i], want.Ledgers, a.history)
		}
		require.Equal(a, wantFound[i].Gap, gotFound[i].Gap)
	}
}

func (a *agreement) messages(want, got []order.Message) {
	at := func(x, y order.Message) int { return x.Position.Compare(y.Position) }
	slices.SortStableFunc(want, at) // late ones come in any order
	slices.SortStableFunc(got, at)
	require.Equal(a, len(want), len(got))
	for i := range want {
		w, g := want[i], got[i]
		require.Equal(a, []any{w.Key, w.Position, w.ID, w.Attempt, w.Age, w.Late, w.Error, string(w.Payload)},
			[]any{g.Key, g.Position, g.ID, g.Attempt, g.Age, g.Late, g.Error, string(g.Payload)})
	}
}
