package redisorder_test

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/seed"
	"github.com/pawl-go/pawl/internal/testenv"
	"github.com/pawl-go/pawl/order"
)

const seeds = 3

func arrival(key string, epoch, number uint64, id, payload string) order.Arrival {
	sum := sha256.Sum256([]byte(id + "\x00" + payload))
	return order.Arrival{Message: order.Message{Key: key, Position: order.Position{Epoch: epoch, Number: number}, ID: id, Payload: []byte(payload)},
		Digest: [16]byte(sum[:16])}
}

// Random steps have the same answers as in the memory store.
func TestAsInMemory(t *testing.T) {
	t.Parallel()
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{testenv.Redis(t)}})
	for _, from := range seed.List(seeds) {
		t.Run(fmt.Sprint(from), func(t *testing.T) {
			compareWithMemory(t, newStore(t, client), order.NewMemory(), rand.New(rand.NewPCG(from, 1)))
		})
	}
}

func compareWithMemory(t *testing.T, a, b order.Store, r *rand.Rand) {
	ctx := t.Context()
	p := order.Params{Scope: "model", Start: uint64(r.IntN(2)), Window: 8, MaxBuffered: 12, MaxAhead: 40, Abandon: r.IntN(2) == 0, Late: r.IntN(2) == 0,
		KeepBody: time.Hour, KeepGaps: time.Hour}
	keys := []string{"a", "b", "ab"}
	held := make(map[string][2]order.Claim)
	top := make(map[string]uint64)
	var trace []string
	fail := func() {
		if t.Failed() {
			for _, line := range trace {
				t.Log(line)
			}
		}
	}
	defer fail()
	for step := range 250 {
		key := keys[r.IntN(len(keys))]
		switch op := r.IntN(10); {
		case op < 4:
			var batch []order.Arrival
			for range 1 + r.IntN(6) {
				n := max(1, int(top[key])+r.IntN(9)-4)
				if r.IntN(20) == 0 {
					n = 60
				}
				arr := arrival(key, uint64(1+r.IntN(30)/27), uint64(n), []string{"", fmt.Sprint(key, n)}[r.IntN(2)], fmt.Sprint("p", n, r.IntN(15)/14))
				batch = append(batch, arr)
				if r.IntN(3) > 0 && uint64(n) == top[key] {
					top[key]++
				}
			}
			if r.IntN(8) == 0 {
				batch[0].Assign, batch[0].ID, batch[0].Position.Epoch = true, fmt.Sprint("as", r.IntN(10)), 0
			}
			x, err := a.Push(ctx, p, batch)
			require.NoError(t, err)
			y, err := b.Push(ctx, p, batch)
			require.NoError(t, err)
			for i := range batch {
				trace = append(trace, fmt.Sprintf("%d push %s %v id=%q assign=%v: %v %v", step, batch[i].Key, batch[i].Position, batch[i].ID, batch[i].Assign, x[i].State, y[i].State))
			}
			for i := range x {
				if x[i].Unverified && y[i].State == order.Conflict {
					continue // it was delivered outside of the buffer: either will do
				}
				if x[i].State == order.Duplicate && y[i].State == order.Duplicate {
					x[i].Unverified, y[i].Unverified = false, false
				}
				require.Equal(t, y[i], x[i], "%d: arrival %d", step, i)
			}
		case op < 6:
			ask := order.Ask{Nonce: [16]byte{byte(step), byte(step >> 8), 1}, Keys: 5, Messages: 3, Bytes: 1000, Lease: time.Hour}
			x, err := a.Claim(ctx, p, ask)
			require.NoError(t, err)
			y, err := b.Claim(ctx, p, ask)
			require.NoError(t, err)
			trace = append(trace, fmt.Sprintf("%d claim %d", step, len(x.Claims)))
			byKey := make(map[string]order.Claim)
			for _, c := range y.Claims {
				byKey[c.Key] = c
			}
			require.Equal(t, len(y.Claims), len(x.Claims), "%d: %v %v", step, x, y)
			for _, c := range x.Claims {
				d := byKey[c.Key]
				trace = append(trace, fmt.Sprintf("   %s epoch %d run %d gap %v late %d", c.Key, c.Epoch, len(c.Run), c.Gap, len(c.Late)))
				require.Equal(t, strip(d), strip(c), "%d", step)
				held[c.Key] = [2]order.Claim{c, d}
			}
		default:
			c, ok := held[key]
			e := uint64(1 + r.IntN(12)/11)
			s := order.Settlement{Kind: order.Kind(1 + r.IntN(int(order.KindForget))), Key: key, Epoch: e, Error: "e", Actor: "", Note: "n",
				Resolution: order.Resolution(1 + r.IntN(3)), Reason: order.ReasonTimeout,
				Lease: time.Hour, Alerted: r.IntN(2) == 0, Asked: r.IntN(3)}
			if s.Kind >= order.KindResume {
				s.Error, s.Actor = "", "who"
			}
			if s.Kind == order.KindForget && r.IntN(8) > 0 {
				continue
			}
			var l order.Ledger
			acc, err := a.Account(ctx, "model", key)
			require.NoError(t, err)
			if len(acc.Ledgers) > 0 {
				l = acc.Ledgers[0]
				if r.IntN(3) > 0 {
					s.Epoch = l.Epoch
				}
			}
			s.From = max(1, l.Cursor+uint64(r.IntN(3))-1)
			s.To = s.From + uint64(r.IntN(4))
			if s.Kind == order.KindRetry || s.Kind == order.KindPark {
				s.From = l.Cursor
			}
			if s.Kind == order.KindUnordered {
				s.From = uint64(max(1, int(top[key])+r.IntN(9)-4))
			}
			if parked, _ := a.Parked(ctx, "model", order.Query{N: 5, Key: key}); len(parked) > 0 && (s.Kind == order.KindResume || s.Kind == order.KindDrop) {
				s.Epoch, s.From = parked[0].Position.Epoch, parked[0].Position.Number
			}
			if s.Kind <= order.KindExtend && !ok {
				continue
			}
			if ok && s.Kind >= order.KindLate && s.Kind <= order.KindLatePark && len(c[0].Late) > 0 {
				s.Epoch, s.From = c[0].Late[0].Position.Epoch, c[0].Late[0].Position.Number
			}
			if s.Kind >= order.KindLate && s.Kind <= order.KindLatePark {
				f, err := b.Find(ctx, p, []order.Place{{Key: key, Position: order.Position{Epoch: s.Epoch, Number: s.From}}})
				require.NoError(t, err)
				if f[0].State == order.StateSettled { // memory forgets sooner, and takes it for a late one that has ended
					continue
				}
			}
			if s.Kind == order.KindDeliver && ok && r.IntN(3) > 0 {
				s.Epoch, s.To = c[0].Epoch, l.Cursor+uint64(len(c[0].Run))
			}
			sa, sb := s, s
			if s.Kind <= order.KindExtend {
				sa.Token, sb.Token = c[0].Token, c[1].Token
			}
			for range 1 + r.IntN(2) {
				x, err := a.Settle(ctx, p, []order.Settlement{sa})
				var y []error
				if err == nil {
					y, err = b.Settle(ctx, p, []order.Settlement{sb})
				} else {
					y, err = b.Settle(ctx, p, []order.Settlement{sb})
				}
				trace = append(trace, fmt.Sprintf("%d settle %d %s epoch %d [%d,%d) res %d: %v %v", step, s.Kind, key, s.Epoch, s.From, s.To, s.Resolution, x, y))
				require.Equal(t, y, x, "%d: %+v %v", step, s, err)
			}
		}
		for _, key := range keys {
			x, err := a.Account(ctx, "model", key)
			require.NoError(t, err)
			y, err := b.Account(ctx, "model", key)
			require.NoError(t, err)
			x.Oldest, y.Oldest = 0, 0
			x.Arrivals, y.Arrivals = order.Arrivals{}, order.Arrivals{}
			require.Equal(t, y, x, "%d %s", step, key)
			var places []order.Place
			for n := range uint64(20) {
				places = append(places, order.Place{Key: key, Position: order.Position{Epoch: 1, Number: n + 1}}, order.Place{ID: fmt.Sprint(key, n)})
			}
			f, err := a.Find(ctx, p, places)
			require.NoError(t, err)
			g, err := b.Find(ctx, p, places)
			require.NoError(t, err)
			for i := range f {
				if f[i].State == order.StateSettled || g[i].State == order.StateSettled ||
					places[i].ID != "" && g[i].State == order.StateLate && f[i].State == order.StateUnknown { // its place was taken
					continue
				}
				require.Equal(t, g[i].State, f[i].State, "%d %v", step, places[i])
				require.Equal(t, g[i].Position, f[i].Position, "%d %v", step, places[i])
				require.Equal(t, g[i].Gap != nil, f[i].Gap != nil, "%d %v", step, places[i])
			}
		}
		for _, unresolved := range []bool{false, true} {
			x, err := a.Gaps(ctx, "model", order.Query{N: 100, Unresolved: unresolved})
			require.NoError(t, err)
			y, err := b.Gaps(ctx, "model", order.Query{N: 100, Unresolved: unresolved})
			require.NoError(t, err)
			for i := range x {
				x[i].Age, x[i].Since = 0, 0
			}
			for i := range y {
				y[i].Age, y[i].Since = 0, 0
			}
			require.Equal(t, append([]order.Gap{}, y...), append([]order.Gap{}, x...), "%d", step)
		}
		x, err := a.Parked(ctx, "model", order.Query{N: 100})
		require.NoError(t, err)
		y, err := b.Parked(ctx, "model", order.Query{N: 100})
		require.NoError(t, err)
		require.Equal(t, len(y), len(x), "%d", step)
		for i := range x {
			x[i].Age, y[i].Age = 0, 0
			require.Equal(t, y[i], x[i], "%d", step)
		}
		tx, err := a.Totals(ctx, "model")
		require.NoError(t, err)
		ty, err := b.Totals(ctx, "model")
		require.NoError(t, err)
		tx.Oldest, ty.Oldest, tx.Parked, ty.Parked = 0, 0, 0, 0
		require.Equal(t, ty, tx, "%d", step)
	}
}

func strip(c order.Claim) order.Claim {
	c.Token, c.Left, c.More = 0, 0, false
	if c.Gap != nil {
		g := *c.Gap
		g.Age, g.Since = 0, 0
		c.Gap = &g
	}
	for i := range c.Run {
		c.Run[i].Age = 0
	}
	for i := range c.Late {
		c.Late[i].Age = 0
	}
	return c
}
