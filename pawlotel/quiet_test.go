package pawlotel_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What must not be told by metrics, logs and errors.
const (
	number  = "4917612345678"
	secret  = "topsecret"
	payload = "hello from anna"
)

var plants = []string{number, secret, payload}

func plantedIn(text string) string {
	for _, p := range plants {
		if strings.Contains(text, p) {
			return p
		}
	}
	return ""
}

// An overhearing keeps what is logged.
type overhearing struct {
	mu  sync.Mutex
	all strings.Builder
}

func (o *overhearing) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(p)
}

func (o *overhearing) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

// A service in which everything that can go wrong does, on behalf of one customer, tells
// its logs and metrics neither their number, nor a secret, nor what they wrote.
func TestNothingPersonalIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, collect := meter()
		s := newLeaky(t, m)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		s.run(ctx, t, running.Go)
		time.Sleep(time.Hour)
		s.persons(t)
		time.Sleep(time.Hour)
		stop()
		running.Wait()

		logged := s.log.text()
		for line := range strings.Lines(logged) {
			if p := plantedIn(line); p != "" {
				t.Errorf("the log tells %q: %s", p, line)
			}
		}
		got := collect(t)
		for name := range got {
			require.Empty(t, plantedIn(name), name)
		}
		// It is told of all the same.
		for _, said := range []string{"order: ", "inbox: ", "dlq: ", "reconcile: ", "watchdog: ",
			"waits for review", "a reviewer was refused", "a reviewer acted", "a person has to resolve", "gives no answer", "reconcile: found"} {
			if !strings.Contains(logged, said) {
				t.Errorf("the log does not say %q", said)
			}
		}
		for _, name := range []string{
			"pawl.dedup.settlements{kind=hold}", "pawl.order.parked{event=parked}", "pawl.inbox.worked{outcome=dead}", "pawl.inbox.panics{}",
			"pawl.dlq.tries{outcome=review}", "pawl.dlq.panics{}", "pawl.dlq.operator_actions{answer=unauthorized}",
			"pawl.reconcile.review{account=acct-1}", "pawl.reconcile.strays{}", "pawl.reconcile.outages{}", "pawl.reconcile.observations{answer=appended}",
			"pawl.reconcile.checks.open{check=types,state=open}", "pawl.watchdog.found{verdict=zombie}", "pawl.watchdog.restarts_failed{}",
		} {
			if got[name] <= 0 {
				t.Errorf("%s is %v", name, got[name])
			}
		}
	})
}

// errLeaky is what an application's error may say.
var errLeaky = fmt.Errorf("POST https://api.example.com/?token=%s to +%s: 503: %q", secret, number, payload)
