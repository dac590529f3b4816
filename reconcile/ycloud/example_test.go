package ycloud_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/ycloud"
)

// A webhook was lost: the message was delivered, and nobody here knows. The check asks, and
// the timeline has it then.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // api.ycloud.com
		fmt.Fprint(w, `{"id":"m1","status":"delivered","sendTime":"2026-11-30T12:00:00Z","deliverTime":"2026-11-30T12:00:02Z"}`)
	}))
	defer server.Close()
	ctx := context.Background()

	ledger, err := reconcile.New(reconcile.NewMemory(), &reconcile.Options{Receipt: true})
	check(err)
	timeline, err := reconcile.NewTimeline(reconcile.NewTimelineMemory(), &reconcile.TimelineOptions{Kind: "ycloud"})
	check(err)
	client, err := ycloud.New("api-key", &ycloud.Options{BaseURL: server.URL})
	check(err)
	checks, err := reconcile.NewChecks(reconcile.NewCheckMemory(), &reconcile.CheckOptions{
		Compare: []reconcile.Comparison{{
			Source: reconcile.InLedger(ledger, func(e reconcile.Entry) (reconcile.Ref, string) {
				return reconcile.Ref{Own: e.Key, Message: string(e.Result)}, string(e.Result)
			}),
			Timeline: timeline, Provider: client,
			// Here: whatever we know nothing of. In earnest, SelectStale or what matters.
			Select: func(_ reconcile.Expected, local reconcile.Projected) bool { return local.Status == "" },
		}},
	})
	check(err)

	err = ledger.Do(ctx, reconcile.Op{Key: "order-7"}, func(context.Context, reconcile.Op) ([]byte, error) {
		return []byte("m1"), nil // YCloud's ID, from the answer
	}, nil)
	fmt.Println(errors.Is(err, reconcile.ErrAccepted))

	check(checks.Once(ctx))
	findings, err := checks.Findings(ctx, reconcile.FindingQuery{N: 10})
	check(err)
	fmt.Println(findings[0].Subject, findings[0].State, "-", findings[0].Detail)
	is, err := timeline.Project(ctx, reconcile.Ref{Own: "order-7"})
	check(err)
	fmt.Println(is.Status, is.Basis.Source)
	// Output:
	// true
	// order-7 open - the provider says more than was known here: delivered, and not nothing
	// delivered lookup
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
