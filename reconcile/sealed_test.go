package reconcile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

func TestSealedAtRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := reconcile.NewMemory()
		keys := []reconcile.Key{{ID: "k1", Secret: bytes.Repeat([]byte{7}, 32)}}
		l := newLedger(t, s, &reconcile.Options{Keys: keys, Horizon: 24 * time.Hour})
		op := reconcile.Op{Key: "a", Payload: []byte("hello customer")}
		if err := l.Do(t.Context(), op, ok, nil); err != nil {
			t.Fatal(err)
		}
		_ = l.Do(t.Context(), reconcile.Op{Key: "b", Payload: []byte("hello again")}, func(context.Context, reconcile.Op) ([]byte, error) { return nil, errLost }, nil)
		raw, err := s.List(t.Context(), reconcile.Query{Kind: "default", N: 10})
		if err != nil || len(raw) != 2 {
			t.Fatal(err)
		}
		for _, e := range raw {
			if bytes.Contains(e.Payload, []byte("hello")) || len(e.Payload) == 0 || e.Key == "a" && (len(e.Result) <= 2 || bytes.Equal(e.Result, []byte("ok"))) {
				t.Errorf("stored %q and %q", e.Payload, e.Result)
			}
		}
		if e := want(t, l, "a", reconcile.Confirmed); string(e.Payload) != "hello customer" || string(e.Result) != "ok" || e.Err != nil {
			t.Errorf("read %q and %q, %v", e.Payload, e.Result, e.Err)
		}
		if got, err := l.DoResult(t.Context(), op, never(t), nil); string(got) != "ok" || err != nil {
			t.Errorf("%q, %v", got, err)
		}

		// Without the key nothing is lost, and nothing sent that is not the payload.
		other := newLedger(t, s, &reconcile.Options{Keys: []reconcile.Key{{ID: "k2", Secret: bytes.Repeat([]byte{8}, 32)}}, Horizon: 24 * time.Hour})
		if _, err := other.DoResult(t.Context(), op, never(t), nil); !errors.Is(err, reconcile.ErrSealed) {
			t.Errorf("without the key: %v", err)
		}
		if err := other.Do(t.Context(), op, never(t), nil); err != nil {
			t.Errorf("it is confirmed all the same: %v", err)
		}
		stop := run(t, other, never(t), nil)
		time.Sleep(time.Hour)
		stop()
		if e := want(t, other, "b", reconcile.Unknown); e.Review == "" || !errors.Is(e.Err, reconcile.ErrSealed) {
			t.Errorf("review %q, %v", e.Review, e.Err)
		}
		if e := want(t, l, "b", reconcile.Unknown); string(e.Payload) != "hello again" {
			t.Errorf("the payload is %q", e.Payload)
		}
		if text := fmt.Sprintf("%v %+v %#v", keys[0], keys[0], keys[0]); bytes.Contains([]byte(text), []byte("7, 7")) {
			t.Errorf("a key prints as %s", text)
		}
		if _, err := reconcile.New(s, &reconcile.Options{Keys: []reconcile.Key{{ID: "short", Secret: []byte("x")}}}); !errors.Is(err, reconcile.ErrInvalid) {
			t.Errorf("a short key: %v", err)
		}
	})
}

// An error of a call may wrap what looks like our own: nil from Do means Confirmed.
func TestErrorsOfOtherLedgersAreNotOurs(t *testing.T) {
	l := newLedger(t, reconcile.NewMemory(), nil)
	for i, err := range []error{&reconcile.ResultSizeError{Size: 2, Limit: 1}, reconcile.ErrSealed} {
		got := l.Do(t.Context(), reconcile.Op{Key: fmt.Sprint(i)}, func(context.Context, reconcile.Op) ([]byte, error) { return nil, err }, nil)
		if !errors.Is(got, reconcile.ErrUnknown) {
			t.Errorf("a call that failed with %v: %v", err, got)
		}
	}
}
