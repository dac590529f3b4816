package watchdogtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/backpressure/watchdog"
)

// Callers at the same time. They do not end the subtest from their goroutines.
var concurrentCases = []testCase{
	{name: "OneOfManyTakes", run: oneTakes},
	{name: "OneOfManyGivesUp", run: oneGivesUp},
	{name: "TheLastRoomIsForOne", run: lastRoom},
	{name: "InstancesAtTheSameTime", run: instancesAtOnce, once: true},
	{name: "BatchesThatCross", run: batchesCross},
}

// Callers that have given up.
var contextCases = []testCase{
	{name: "CancelledContext", run: func(e *env) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		e.givenUp(ctx, context.Canceled)
	}, once: true},
	{name: "ExpiredContext", run: func(e *env) {
		ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Hour))
		defer cancel()
		e.givenUp(ctx, context.DeadlineExceeded)
	}, once: true},
}

const callers = 8

// together runs n calls at the same time and reports their errors.
func (e *env) together(n int, call func(i int) error) {
	e.Helper()
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-begin
			if err := call(i); err != nil {
				e.Errorf("caller %d: %v", i, err)
			}
		})
	}
	close(begin)
	wg.Wait()
	if e.Failed() {
		e.FailNow()
	}
}

func oneTakes(e *env) {
	for round := range 10 {
		name := fmt.Sprint(round)
		e.join(name)
		outcomes := make([]watchdog.Outcome, callers)
		asks := make([]watchdog.Action, callers)
		for i := range asks {
			asks[i] = e.take(name, time.Hour, 5)
		}
		e.together(callers, func(i int) error {
			o, err := e.store.Act(context.Background(), e.p.Scope, asks[i:i+1])
			if err == nil {
				outcomes[i] = o[0]
			}
			return err
		})
		granted := 0
		for _, o := range outcomes {
			if o.Err == nil {
				granted++
			} else {
				e.refused("a take beside another", o.Err, watchdog.ErrBusy)
			}
		}
		if granted != 1 || e.look(name).Attempts != 1 {
			e.Fatalf("%d of %d callers were granted the attempt, and the record is %+v", granted, callers, e.look(name))
		}
	}
}

func oneGivesUp(e *env) {
	e.join("w")
	o := e.granted(e.take("w", time.Hour, 1), 1)
	e.applied(watchdog.Action{Kind: watchdog.KindDone, Name: "w", Claim: o.Claim, Wait: time.Microsecond})
	e.tick()
	asks := make([]watchdog.Action, callers)
	for i := range asks {
		asks[i] = e.take("w", time.Hour, 1)
	}
	var mu sync.Mutex
	firsts := 0
	e.together(callers, func(i int) error {
		o, err := e.store.Act(context.Background(), e.p.Scope, asks[i:i+1])
		mu.Lock()
		defer mu.Unlock()
		if err == nil && o[0].First {
			firsts++
		}
		if err == nil && !errors.Is(o[0].Err, watchdog.ErrGivenUp) {
			err = fmt.Errorf("answered %+v", o[0])
		}
		return err
	})
	if firsts != 1 {
		e.Fatalf("%d of %d callers gave the worker up", firsts, callers)
	}
}

func lastRoom(e *env) {
	e.p.Most = 3
	e.join("a")
	e.join("b")
	var mu sync.Mutex
	taken := 0
	e.together(callers, func(i int) error {
		b := e.instance(fmt.Sprint(i)).last
		b.Join, b.Seq = true, 1
		acks, err := e.store.Beat(context.Background(), e.p, []watchdog.Beat{b})
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			return err
		case acks[0].Err == nil:
			taken++
		case !errors.Is(acks[0].Err, watchdog.ErrFull):
			return acks[0].Err
		}
		return nil
	})
	if n := len(e.list("", 100).Records); taken != 1 || n != 3 {
		e.Fatalf("%d workers took the last room, and there are %d records of 3", taken, n)
	}
}

func instancesAtOnce(e *env) {
	tokens := make([]uint64, callers)
	nonces := make([]watchdog.Beat, callers)
	e.together(callers, func(i int) error {
		b := e.instance("w").last
		b.Join, b.Seq = true, 1
		acks, err := e.store.Beat(context.Background(), e.p, []watchdog.Beat{b})
		if err == nil {
			tokens[i], nonces[i], err = acks[0].Token, b, acks[0].Err
		}
		return err
	})
	last := e.look("w").Token
	seen := map[uint64]bool{}
	for i, token := range tokens {
		if seen[token] || token > last {
			e.Fatalf("the tokens %v were given, and the record has %d", tokens, last)
		}
		seen[token] = true
		b := nonces[i]
		b.Join, b.Seq = false, 2
		if err := e.beat(b).Err; (err == nil) != (token == last) {
			e.Fatalf("the instance with token %d was answered %v, and the record has %d", token, err, last)
		}
	}
}

// batchesCross sends batches with the same names in different orders, and with new ones
// beside them: none may wait for another for ever.
func batchesCross(e *env) {
	workers := make([]watchdog.Beat, 40)
	for i := range workers {
		workers[i] = e.join(fmt.Sprint("m", i)).last
	}
	e.together(callers, func(i int) error {
		for round := range 5 {
			batch := make([]watchdog.Beat, len(workers))
			for k := range batch {
				at := k
				if i%2 == 1 {
					at = len(workers) - 1 - k
				}
				batch[k] = workers[at]
				batch[k].Seq = uint64(2 + round*callers + i)
			}
			first := []string{"a", "z"}[i%2] // before the others or after them, in the order of names
			b := e.instance(fmt.Sprintf("%s-%d-%d", first, i, round)).last
			b.Join, b.Seq = true, 1
			batch = slices.Insert(batch, len(batch)/2, b)
			acks, err := e.store.Beat(context.Background(), e.p, batch)
			for _, a := range acks {
				if err == nil {
					err = a.Err
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	for i := range workers {
		if r := e.look(fmt.Sprint("m", i)); r.Seq != 1+5*callers {
			e.Fatalf("worker %d is at beat %d, want %d", i, r.Seq, 1+5*callers)
		}
	}
}

// givenUp calls with a context that has ended.
func (e *env) givenUp(ctx context.Context, cause error) {
	e.Helper()
	b := e.instance("w").last
	b.Join, b.Seq = true, 1
	_, err := e.store.Beat(ctx, e.p, []watchdog.Beat{b})
	e.refused("Beat with an ended context", err, cause)
	_, err = e.store.List(ctx, e.p.Scope, "", 10)
	e.refused("List with an ended context", err, cause)
	e.beat(b)
	a := e.take("w", time.Hour, 5)
	_, err = e.store.Act(ctx, e.p.Scope, []watchdog.Action{a})
	e.refused("Act with an ended context", err, cause)
	e.granted(a, 1)
}
