package standardwebhooks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/standardwebhooks"
)

// The endpoint of one provider: what it sends twice is stored once.
func Example() {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // of the specification's examples
	source, err := standardwebhooks.New(&standardwebhooks.Options{
		Provider: "openai",
		Secrets:  []standardwebhooks.Secret{{Value: secret}},
		Key: func(e inbox.Event) string { // events about one response, in order
			var body struct{ Data struct{ ID string } }
			json.Unmarshal(e.Payload, &body)
			return body.Data.ID
		},
	})
	if err != nil {
		panic(err)
	}
	box, err := inbox.New(inbox.NewMemory(), nil)
	if err != nil {
		panic(err)
	}
	handler, err := inbox.Handler(box, source, nil)
	if err != nil {
		panic(err)
	}

	const body = `{"id": "evt_1", "created_at": 1750861210, "type": "response.completed", "data": {"id": "resp_123"}}`
	for range 2 { // as the provider does, in separate attempts
		d := &inbox.Delivery{Body: []byte(body)}
		if err := standardwebhooks.Sign(secret, "msg_1", time.Now(), d); err != nil {
			panic(err)
		}
		r := httptest.NewRequest(http.MethodPost, "/openai", strings.NewReader(body))
		r.Header = d.Header
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	stats := box.Stats()
	fmt.Println(stats.Accepted, "accepted,", stats.Duplicates, "known")

	records, err := box.Get(context.Background(), "openai/msg_1")
	if err != nil {
		panic(err)
	}
	fmt.Println(records[0].Type, "in order of", records[0].Key)
	// Output:
	// 200
	// 200
	// 1 accepted, 1 known
	// response.completed in order of openai/resp_123
}
