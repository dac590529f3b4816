package backpressure_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/pawl-go/pawl/backpressure"
)

// Two lines of business: chat messages, and notices that give way to them.
func ExampleShaper() {
	shaper, err := backpressure.NewShaper(&backpressure.ShaperOptions{Lines: []backpressure.LineOptions{
		{Name: "im", Rate: 1, Burst: 5, Importance: 2},
		{Name: "notify", Rate: 1, Burst: 5, Floor: 0.2},
	}})
	if err != nil {
		panic(err)
	}
	im, _ := shaper.Line("im")
	notify, _ := shaper.Line("notify")
	admitted := 0
	for range 100 {
		if im.Allow(1).Admit {
			admitted++
		}
	}
	fmt.Println("im:", admitted, "of 100: its burst, and the other line's down to the floor")
	v := notify.Allow(1)
	fmt.Println("notify:", v.Admit)
	v = notify.Allow(1)
	fmt.Println("notify:", v.Admit, "-", v.Reason)
	// Output:
	// im: 9 of 100: its burst, and the other line's down to the floor
	// notify: true
	// notify: false - the rate is used up
}

// A caller that cannot have its turn before its deadline is told at once.
func ExampleLine_Wait() {
	shaper, _ := backpressure.NewShaper(&backpressure.ShaperOptions{
		Lines: []backpressure.LineOptions{{Name: "templates", Rate: 0.01}},
	})
	templates, _ := shaper.Line("templates")
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	fmt.Println(templates.Wait(ctx, 1))
	err := templates.Wait(ctx, 1)
	fmt.Println(errors.Is(err, backpressure.ErrRefused), errors.Is(err, context.DeadlineExceeded))
	// Output:
	// <nil>
	// true true
}

// No customer uses up what is there for all.
func ExampleKeyed() {
	perCustomer, _ := backpressure.NewKeyed(&backpressure.KeyedOptions{Rate: 1.0 / 6}) // one message in six seconds
	fmt.Println(perCustomer.Allow("customer 1", 1).Admit)
	fmt.Println(perCustomer.Allow("customer 1", 1).Reason)
	fmt.Println(perCustomer.Allow("customer 2", 1).Admit)
	// Output:
	// true
	// the rate is used up
	// true
}

// The priority is decided where a task enters the system, and inherited.
func ExampleGate() {
	gate, err := backpressure.NewGate(&backpressure.GateOptions{Concurrency: 10})
	if err != nil {
		panic(err)
	}
	ctx := backpressure.WithPriority(context.Background(), backpressure.Priority{
		Class: backpressure.ClassHigh,
		User:  backpressure.UserLevel("account 17", time.Now()),
	})
	err = gate.Do(ctx, func(ctx context.Context) error {
		p, _ := backpressure.PriorityFrom(ctx)
		fmt.Println("runs with priority", p.Class)
		return nil
	})
	fmt.Println(err)
	// Output:
	// runs with priority high
	// <nil>
}

// A backlog grows through the marks of the default table, and is worked off.
func ExampleLevels() {
	levels, err := backpressure.NewLevels(&backpressure.LevelsOptions{
		Signals:  []backpressure.Signal{{Name: "backlog"}},
		Dwell:    time.Nanosecond, // for the example
		ScaleOut: func(a backpressure.Advice) { fmt.Printf("add %.0f %% of capacity\n", 100*a.Scale) },
		OnChange: func(e backpressure.Event) {
			fmt.Printf("level %d -> %d: %s\n", e.From, e.To, e.Reason)
		},
	})
	if err != nil {
		panic(err)
	}
	for _, backlog := range []float64{90_000, 150_000, 6_000_000, 0, 0} {
		_ = levels.Observe("backlog", backlog)
		time.Sleep(time.Millisecond)
	}
	fmt.Println("without:", levels.Degrade())
	// Output:
	// add 50 % of capacity
	// level 0 -> 1: backlog is 150000, at or above the mark 100000 of level 1
	// level 1 -> 3: backlog is 6e+06, at or above the mark 5e+06 of level 3
	// level 3 -> 0: backlog is 0, the last below the leave mark 80000 of level 1
	// without: nothing
}

// All layers before one handler: at level 3 likes are closed, messages are not.
func ExampleHandler() {
	levels, _ := backpressure.NewLevels(&backpressure.LevelsOptions{Signals: []backpressure.Signal{{Name: "backlog"}}})
	perCustomer, _ := backpressure.NewKeyed(&backpressure.KeyedOptions{Rate: 10})
	gate, _ := backpressure.NewGate(&backpressure.GateOptions{Concurrency: 100})
	handler, err := backpressure.Handler(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			small := backpressure.DegradeFrom(r.Context()).Has(backpressure.ShrinkMedia)
			fmt.Fprintf(w, "stored, small media: %v", small)
		}),
		&backpressure.HandlerOptions{
			Levels: levels,
			Core:   func(r *http.Request) bool { return r.URL.Path != "/likes" },
			Limit: func(r *http.Request) backpressure.Verdict {
				host, _, _ := net.SplitHostPort(r.RemoteAddr) // without the port, which differs per connection
				return perCustomer.Allow(host, 1)
			},
			Gate: gate,
		})
	if err != nil {
		panic(err)
	}
	_ = levels.Observe("backlog", 6_000_000)
	for _, path := range []string{"/messages", "/likes"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
		fmt.Println(path, w.Code, w.Body)
	}
	// Output:
	// /messages 200 stored, small media: true
	// /likes 503 closed for all but core writes
}

// The client half waits as long as the server asks before it sends again.
func ExampleClient() {
	answers := []int{http.StatusTooManyRequests, http.StatusOK}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(answers[0])
		answers = answers[1:]
	}))
	defer server.Close()
	transport, err := backpressure.NewClient(server.Client().Transport, nil)
	if err != nil {
		panic(err)
	}
	start := time.Now()
	resp, err := (&http.Client{Transport: transport}).Get(server.URL)
	if err != nil {
		panic(err)
	}
	_ = resp.Body.Close()
	fmt.Println(resp.StatusCode, time.Since(start) >= time.Second)
	// Output:
	// 200 true
}
