package order_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/order"
)

func TestPushAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		b := newBuffer(t, s, &order.Options{MaxBuffered: 3, MaxAhead: 100})
		push(t, b, order.Buffered, msgs("a", 1, 3)...)
		push(t, b, order.Duplicate, msg("a", 3))
		other := msg("a", 3)
		other.Payload = []byte("other")
		push(t, b, order.Conflict, other)
		push(t, b, order.TooFar, msg("a", 101))
		push(t, b, order.Buffered, msg("a", 4))
		push(t, b, order.Full, msg("a", 5))
		got := account(t, b, "a").Arrivals
		want := order.Arrivals{Pushed: 7, Accepted: 3, Duplicate: 1, Conflict: 1, Full: 1, TooFar: 1}
		if got != want {
			t.Errorf("arrivals %+v, want %+v", got, want)
		}
		st := b.Stats()
		if st.Buffered != 3 || st.Duplicate != 1 || st.Conflict != 1 || st.Full != 1 || st.TooFar != 1 {
			t.Errorf("stats %+v", st)
		}
	})
}

// The content of a message is its ID and its payload, and neither can take from
// the other.
func TestDigestTellsIDAndPayloadApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBuffer(t, order.NewMemory(), nil)
		m := order.Message{Key: "a", Position: order.Position{Number: 1}, ID: "x", Payload: []byte("yz")}
		push(t, b, order.Buffered, m)
		m.ID, m.Payload = "xy", []byte("z")
		push(t, b, order.Conflict, m)
		long := order.Message{Key: "a", Position: order.Position{Number: 2}, ID: "long", Payload: []byte(strings.Repeat("p", 5000))}
		push(t, b, order.Buffered, long)
		push(t, b, order.Duplicate, long)
		long.Payload[4999] = 'q'
		push(t, b, order.Conflict, long)
	})
}

func TestPushRefusesWhatIsInvalid(t *testing.T) {
	s := newFaulty(order.NewMemory())
	b := newBuffer(t, s, &order.Options{MaxPayload: 8})
	ok := order.Message{Key: "k", Position: order.Position{Number: 1}, Payload: []byte("12345678")}
	for name, change := range map[string]func(m *order.Message){
		"empty key":        func(m *order.Message) { m.Key = "" },
		"huge key":         func(m *order.Message) { m.Key = strings.Repeat("k", 513) },
		"NUL in key":       func(m *order.Message) { m.Key = "a\x00b" },
		"bad UTF-8 in key": func(m *order.Message) { m.Key = "a\xff" },
		"huge ID":          func(m *order.Message) { m.ID = strings.Repeat("k", 513) },
		"NUL in ID":        func(m *order.Message) { m.ID = "a\x00b" },
		"number 0":         func(m *order.Message) { m.Position.Number = 0 },
		"number 2^63":      func(m *order.Message) { m.Position.Number = 1 << 63 },
		"number 2^64-1":    func(m *order.Message) { m.Position.Number = 1<<64 - 1 },
		"epoch 2^63":       func(m *order.Message) { m.Position.Epoch = 1 << 63 },
		"payload":          func(m *order.Message) { m.Payload = []byte("123456789") },
		"context":          func(m *order.Message) { m.Context = make([]byte, 4097) },
	} {
		m := ok
		change(&m)
		answers, err := b.Push(t.Context(), ok, m)
		if !errors.Is(err, order.ErrInvalid) || answers != nil {
			t.Errorf("%s: answered %v, %v", name, answers, err)
		}
		if err != nil && strings.Contains(err.Error(), "kkk") {
			t.Errorf("%s: the error names the key: %v", name, err)
		}
	}
	if s.n != 0 {
		t.Errorf("the store was asked %d times", s.n)
	}
	ok.Key = strings.Repeat("k", 512)
	ok.Position = order.Position{Epoch: order.MaxNumber, Number: 1}
	push(t, b, order.Buffered, ok)
}

// A lost reply makes no difference: the message is found on the second sending.
func TestPushIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty(order.NewMemory())
		b := newBuffer(t, s, nil)
		lost := false
		s.after = func(step) error {
			if lost {
				return nil
			}
			lost = true
			return errBroken
		}
		push(t, b, order.Duplicate, msg("a", 1)) // its own
		s.after, s.before = nil, fail("push")
		answers, err := b.Push(t.Context(), msgs("a", 2, 3)...)
		if !errors.Is(err, order.ErrUnavailable) || !errors.Is(err, errBroken) || len(answers) != 2 || answers[1].Err == nil {
			t.Errorf("got %v, %v", answers, err)
		}
		s.before, s.hang = nil, func(step) bool { return true }
		begin := time.Now()
		if _, err := b.Push(t.Context(), msg("a", 2)); !errors.Is(err, order.ErrUnavailable) || time.Since(begin) != 5*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Push(ctx, msg("a", 2)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, order.ErrUnavailable) {
			t.Errorf("a caller that gave up got %v", err)
		}
		s.set(func(f *faulty) { f.hang = nil })
		later(time.Minute)
		push(t, b, order.Buffered, msg("a", 2))
	})
}

// Concurrent pushes share a step, and each gets its own answers.
func TestPushesAreJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty(order.NewMemory())
		b := newBuffer(t, s, nil)
		s.before = func(step) error {
			time.Sleep(time.Millisecond)
			return nil
		}
		var wg sync.WaitGroup
		for i := range uint64(100) {
			wg.Go(func() { push(t, b, order.Buffered, msgs("a", 3*i+1, 3*i+2, 3*i+3)...) })
		}
		wg.Wait()
		if s.n > 4 {
			t.Errorf("100 pushes took %d steps", s.n)
		}
		s.n = 0
		big := make([]order.Message, 1500)
		for i := range big {
			big[i] = msg("b", uint64(i+1))
		}
		push(t, b, order.Buffered, big...)
		if s.n != 3 {
			t.Errorf("a push of 1500 messages took %d steps, want 3 of at most 512", s.n)
		}
	})
}

func TestOneMessageTwiceInOnePush(t *testing.T) {
	bubble(t, func(t *testing.T, s order.Store) {
		b := newBuffer(t, s, nil)
		answers, err := b.Push(t.Context(), msg("a", 1), msg("a", 1))
		if err != nil || answers[0].State != order.Buffered || answers[1].State != order.Duplicate {
			t.Errorf("got %v, %v", answers, err)
		}
	})
}

// A store that answers nonsense has not said that a message is stored.
func TestPushBelievesNoNonsense(t *testing.T) {
	for name, answers := range map[string][]order.Answer{
		"none": nil, "too few": {{State: order.Buffered}}, "no state": {{State: order.Buffered}, {}},
		"unordered": {{State: order.Buffered}, {State: order.Unordered}},
	} {
		s := &nonsense{order.NewMemory(), answers}
		b := newBuffer(t, s, nil)
		if _, err := b.Push(t.Context(), msgs("a", 1, 2)...); !errors.Is(err, order.ErrUnavailable) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

type nonsense struct {
	order.Store
	answers []order.Answer
}

func (s *nonsense) Push(context.Context, order.Params, []order.Arrival) ([]order.Answer, error) {
	return s.answers, nil
}

func TestNewRefuses(t *testing.T) {
	if _, err := order.New(nil, nil); !errors.Is(err, order.ErrInvalid) {
		t.Error(err)
	}
	if _, err := order.New((*order.Memory)(nil), nil); !errors.Is(err, order.ErrInvalid) {
		t.Error(err)
	}
	for _, o := range []order.Options{
		{Scope: "a b"}, {Scope: strings.Repeat("a", 65)}, {Start: 1 << 63}, {Start: 1, FromFirst: true},
		{Window: -1}, {Window: 1<<20 + 1}, {MaxBuffered: -1}, {MaxBuffered: 1_000_001}, {MaxAhead: 1 << 63}, {MaxPayload: -1},
		{MaxPayload: 16<<20 + 1}, {GapTimeout: -1}, {AlertAfter: -1}, {AfterTimeout: 2}, {OldEpoch: 3}, {OrphanWait: -1}, {KeepGaps: -1},
		{StoreTimeout: -1}, {UnavailableAfter: -1}, {GapTimeout: order.MaxDuration + 1}, {KeepBody: order.MaxDuration + 1},
	} {
		if _, err := order.New(order.NewMemory(), &o); !errors.Is(err, order.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	b := newBuffer(t, order.NewMemory(), nil)
	nop := func(context.Context, order.Message) error { return nil }
	for _, o := range []order.RunOptions{
		{Mode: 2}, {Concurrency: -1}, {Batch: -1}, {Batch: 1001}, {PerTx: -1}, {MaxAttempts: -1}, {Lease: time.Microsecond},
		{Lease: order.MaxDuration + 1}, {Poll: -1}, {Grace: -1}, {Timeout: -1},
	} {
		wantErr(t, b.Run(t.Context(), nop, &o), order.ErrInvalid)
	}
	wantErr(t, b.Run(t.Context(), nil, nil), order.ErrInvalid)
	wantErr(t, b.RunTx(t.Context(), nil, nil), order.ErrInvalid)
	wantErr(t, b.With(nil).Run(t.Context(), nop, nil), order.ErrInvalid)
	_, err := b.With(nil).Push(t.Context(), msg("a", 1))
	wantErr(t, err, order.ErrInvalid)
}

// A push whose store hangs, or whose caller gives up, has an answer for each message:
// none is known to be stored.
func TestPushWithoutAnAnswerHasAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaulty(order.NewMemory())
		s.hang = func(st step) bool { return st.op == "push" }
		b := newBuffer(t, s, nil)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, test := range []struct {
			name string
			ctx  context.Context
			want error
		}{
			{"the caller gives up", short, context.DeadlineExceeded},
			{"the caller gave up", gone, context.Canceled},
			{"the store hangs", t.Context(), order.ErrUnavailable},
		} {
			name := test.name
			answers, err := b.Push(test.ctx, msgs("a", 1, 2)...)
			wantErr(t, err, test.want)
			if own := test.ctx != t.Context(); own == errors.Is(err, order.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
			if len(answers) != 2 {
				t.Fatalf("%s: answers %+v", name, answers)
			}
			for _, a := range answers {
				if wantErr(t, a.Err, test.want); a.Taken() {
					t.Errorf("%s: %+v counts as taken", name, a)
				}
			}
		}
		later(time.Minute) // the store's calls end
		if answers, err := b.Push(t.Context(), order.Message{}); answers != nil || !errors.Is(err, order.ErrInvalid) {
			t.Errorf("%v, %v", answers, err)
		}
	})
}

func TestTaken(t *testing.T) {
	for state := order.Arrived(0); state <= order.Unordered+1; state++ {
		want := slices.Contains([]order.Arrived{order.Buffered, order.Duplicate, order.Late, order.Unordered}, state)
		if got := (order.Answer{State: state}).Taken(); got != want {
			t.Errorf("%v is taken: %v", state, got)
		}
		if (order.Answer{State: state, Err: errBroken}).Taken() {
			t.Errorf("%v with an error is taken", state)
		}
	}
}
