package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// A page for those on call: what is dead, and a button to replay it. Put it behind
// your own sign-in and its protection against forged requests; [inbox.Authorize] asks
// the context who it is.
func ExampleOperator_page() {
	box, err := inbox.New(inbox.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	operator, err := inbox.NewOperator(box, func(ctx context.Context, i inbox.Intent) (string, error) {
		if name, _ := ctx.Value(onCall{}).(string); name != "" {
			return name, nil
		}
		return "", errors.New("nobody has signed in")
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	page := deadPage(operator)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := box.Accept(ctx, inbox.Event{ID: "test/m1", Provider: "test", Type: "order"}); err != nil {
		log.Fatal(err)
	}
	err = box.Work(ctx, func(context.Context, inbox.Record) inbox.Outcome {
		cancel()
		return inbox.Dead(errors.New("the CRM does not know this customer"))
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	ask := func(name, method string, form url.Values) {
		r := httptest.NewRequest(method, "/dead", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), onCall{}, name)))
		fmt.Printf("%s %d %q\n", method, w.Code, strings.TrimSpace(w.Body.String()))
	}
	replay := url.Values{"id": {"test/m1"}, "reason": {"the customer was added"}}
	ask("alice", "GET", nil)
	ask("", "POST", replay)
	ask("alice", "POST", url.Values{"id": {"test/m1"}})
	ask("alice", "POST", replay)
	ask("alice", "POST", replay) // it is pending now
	// Output:
	// GET 200 "<li>order test/m1: the CRM does not know this customer</li>"
	// POST 403 "Forbidden"
	// POST 400 "Bad Request"
	// POST 303 ""
	// POST 409 "Conflict"
}

type onCall struct{} // what the middleware of the sign-in puts into the context

var deadList = template.Must(template.New("dead").Parse(`{{range .}}<li>{{.Type}} {{.ID}}: {{.LastError}}</li>
{{end}}`)) // and in earnest a form with the ID and a reason

func deadPage(operator *inbox.Operator) http.Handler {
	fail := func(w http.ResponseWriter, err error) {
		status := http.StatusInternalServerError
		switch {
		case errors.Is(err, inbox.ErrUnauthorized):
			status = http.StatusForbidden
		case errors.Is(err, inbox.ErrInvalid): // such as no reason
			status = http.StatusBadRequest
		case errors.Is(err, inbox.ErrNotFound):
			status = http.StatusNotFound
		case errors.Is(err, inbox.ErrState), errors.Is(err, inbox.ErrUndecoded):
			status = http.StatusConflict
		case errors.Is(err, inbox.ErrUnavailable):
			status = http.StatusServiceUnavailable
		}
		http.Error(w, http.StatusText(status), status)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /dead", func(w http.ResponseWriter, r *http.Request) {
		after, _ := strconv.ParseUint(r.FormValue("after"), 10, 64) // the last record's Seq; zero begins
		records, err := operator.Inspect(r.Context(), inbox.Query{State: inbox.StateDead, After: after, N: 50})
		if err != nil {
			fail(w, err)
			return
		}
		if err := deadList.Execute(w, records); err != nil {
			log.Print(err)
		}
	})
	mux.HandleFunc("POST /dead", func(w http.ResponseWriter, r *http.Request) {
		if err := operator.Replay(r.Context(), r.FormValue("id"), 0, r.FormValue("reason")); err != nil {
			fail(w, err)
			return
		}
		w.Header().Set("Location", "/dead")
		w.WriteHeader(http.StatusSeeOther)
	})
	return mux
}
