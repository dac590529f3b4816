package ycloud_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/ycloud"
	"github.com/pawl-go/pawl/retry"
)

const key = "secret-key-0815"

// id is as YCloud makes them; number is in what it answers.
const (
	id     = "627c8640675de8fc689ab9d9"
	number = "4915100000000"
)

// serve answers every request with f, and returns a client of it.
func serve(t *testing.T, f http.HandlerFunc) *ycloud.Client {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	c, err := ycloud.New(key, &ycloud.Options{BaseURL: s.URL + "/v2/", Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func answer(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

const delivered = `{"id":"` + id + `","wamid":"wamid.x","wabaId":"w","from":"+1555","to":"+` + number + `","status":"delivered",
	"externalId":"order-7","createTime":"2026-11-30T12:00:00.123Z","sendTime":"2026-11-30T12:00:01Z","deliverTime":"2026-11-30T12:00:02.500Z",
	"updateTime":"2026-11-30T12:00:02.500Z","text":{"body":"private"},"unheardOf":[1]}`

func TestLookup(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.EscapedPath() != "/v2/whatsapp/messages/"+id || r.Header.Get("X-API-Key") != key || r.URL.RawQuery != "" {
			t.Errorf("asked %s %s with key %t", r.Method, r.URL, r.Header.Get("X-API-Key") == key)
		}
		fmt.Fprint(w, delivered)
	})
	os, err := c.Lookup(t.Context(), id)
	if err != nil || len(os) != 3 {
		t.Fatalf("%+v, %v", os, err)
	}
	for i, want := range []struct {
		status string
		at     time.Time
	}{
		{"accepted", time.Date(2026, 11, 30, 12, 0, 0, 123e6, time.UTC)},
		{"sent", time.Date(2026, 11, 30, 12, 0, 1, 0, time.UTC)},
		{"delivered", time.Date(2026, 11, 30, 12, 0, 2, 500e6, time.UTC)},
	} {
		o := os[i]
		if o.Status != want.status || !o.Said.Equal(want.at) || o.Message != id || o.Own != "order-7" || o.Source != reconcile.SourceLookup {
			t.Errorf("observation %d is %+v, want %+v", i, o, want)
		}
	}
	tl, err := reconcile.NewTimeline(reconcile.NewTimelineMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tl.Append(t.Context(), os...); err != nil {
		t.Fatalf("a timeline does not take it: %v", err)
	}
}

func TestLookupOfOtherShapes(t *testing.T) {
	for name, c := range map[string]struct {
		body     string
		statuses string
		code     string
	}{
		"failed":                {`{"id":"` + id + `","status":"failed","errorCode":"131026","updateTime":"2026-11-30T12:00:00Z"}`, "failed", "131026"},
		"failed with a number":  {`{"id":"` + id + `","status":"failed","errorCode":131026}`, "failed", "131026"},
		"failed with an object": {`{"id":"` + id + `","status":"failed","errorCode":{}}`, "failed", ""},
		"no times":              {`{"id":"` + id + `","status":"read"}`, "read", ""},
		"unreadable times":      {`{"id":"` + id + `","status":"sent","sendTime":"yesterday","createTime":7}`, "sent", ""},
		"a new status":          {`{"id":"` + id + `","status":"played","createTime":"2026-11-30T12:00:00Z"}`, "accepted played", ""},
		"a number as own ID":    {`{"id":"` + id + `","status":"sent","externalId":"+` + number + `"}`, "sent", ""},
	} {
		t.Run(name, func(t *testing.T) {
			os, err := serve(t, answer(200, c.body)).Lookup(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			var statuses []string
			for _, o := range os {
				statuses = append(statuses, o.Status)
				if o.Code != c.code && o.Status == "failed" || o.Own != "" {
					t.Errorf("%+v", o)
				}
			}
			if got := strings.Join(statuses, " "); got != c.statuses {
				t.Errorf("got %q, want %q", got, c.statuses)
			}
			tl, _ := reconcile.NewTimeline(reconcile.NewTimelineMemory(), nil)
			if _, err := tl.Append(t.Context(), os...); err != nil {
				t.Errorf("a timeline does not take it: %v", err)
			}
		})
	}
}

func TestLookupErrors(t *testing.T) {
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		is    error // nil: any
		code  int
	}{
		"not found":    {answer(404, `{"error":{"status":404,"code":"NOT_FOUND","message":"no `+number+`"}}`), reconcile.ErrNoMessage, 0},
		"unauthorized": {answer(401, key), nil, 401},
		"server error": {answer(500, number), nil, 500},
		"redirect": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://example.com/"+number)
			w.WriteHeader(302)
		}, nil, 302},
		"no content":     {answer(204, ""), nil, 204},
		"another":        {answer(200, `{"id":"other","status":"read"}`), nil, 0},
		"no status":      {answer(200, `{"id":"`+id+`"}`), nil, 0},
		"long status":    {answer(200, `{"id":"`+id+`","status":"`+strings.Repeat("x", 65)+`"}`), nil, 0},
		"no JSON":        {answer(200, `<html>`+number), nil, 0},
		"wrong types":    {answer(200, `{"id":`+number+`}`), nil, 0},
		"empty":          {answer(200, ``), nil, 0},
		"too large":      {answer(200, `{"id":"`+id+`","x":"`+strings.Repeat("x", 2<<20)+`"}`), nil, 0},
		"cut connection": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil, 0},
		"cut body": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"id":"`+number)
		}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := serve(t, c.serve).Lookup(t.Context(), id)
			if err == nil || c.is != nil && !errors.Is(err, c.is) {
				t.Fatalf("got %v, want %v", err, c.is)
			}
			if s := (*retry.StatusError)(nil); c.code != 0 && (!errors.As(err, &s) || s.Code != c.code) {
				t.Errorf("got %v, want status %d", err, c.code)
			}
			for _, secret := range []string{key, number, id} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error holds %q: %v", secret, err)
				}
			}
		})
	}
	c := serve(t, answer(200, delivered))
	for _, bad := range []string{"", "..", ".", strings.Repeat("x", 513), "\xff"} {
		if _, err := c.Lookup(t.Context(), bad); !errors.Is(err, reconcile.ErrInvalid) {
			t.Errorf("an ID of %d bytes: %v", len(bad), err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Lookup(ctx, id); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), id) {
		t.Errorf("cancelled: %v", err)
	}
}

// An ID cannot leave its place in the path.
func TestHostileIDs(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if n := strings.Count(r.URL.EscapedPath(), "/"); n != 4 || r.URL.RawQuery != "" || r.URL.Fragment != "" {
			t.Errorf("asked %s", r.URL)
		}
		w.WriteHeader(404)
	})
	for _, bad := range []string{"a/b", "../balance", "a?x=1", "a#b", "a%2fb", "a\r\nX: y"} {
		if _, err := c.Lookup(t.Context(), bad); !errors.Is(err, reconcile.ErrNoMessage) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// The key does not go along to wherever a redirect leads, whoever's client it is.
func TestTheKeyIsNotRedirected(t *testing.T) {
	var leaked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leaked.Add(1)
		fmt.Fprintf(w, `{"id":%q,"status":"sent"}`, id)
	}))
	defer other.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	mine := &http.Client{}
	for name, client := range map[string]*http.Client{"none": nil, "mine": mine} {
		c, err := ycloud.New(key, &ycloud.Options{HTTP: client, BaseURL: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Lookup(t.Context(), id)
		if s := (*retry.StatusError)(nil); !errors.As(err, &s) || s.Code != 307 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if leaked.Load() != 0 || mine.CheckRedirect != nil {
		t.Errorf("the key went along %d times, or the caller's client was changed", leaked.Load())
	}
}

// roundTripper answers without a network, in a bubble.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		after := "120"
		c, err := ycloud.New(key, &ycloud.Options{HTTP: &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			asked.Add(1)
			w := httptest.NewRecorder()
			if after != "" {
				w.Header().Set("Retry-After", after)
			}
			w.WriteHeader(429)
			return w.Result(), nil
		})}})
		if err != nil {
			t.Fatal(err)
		}
		check := func(want int32) {
			t.Helper()
			_, err := c.Lookup(t.Context(), id)
			if s := (*retry.StatusError)(nil); !errors.As(err, &s) || s.Code != 429 || asked.Load() != want {
				t.Fatalf("asked %d times, want %d: %v", asked.Load(), want, err)
			}
		}
		check(1)
		check(1)
		time.Sleep(119 * time.Second)
		check(1)
		time.Sleep(2 * time.Second)
		after = ""
		check(2)
		check(2) // a second where none is said
		time.Sleep(time.Second)
		after = "999999999"
		check(3)
		time.Sleep(time.Hour)
		check(4) // an hour at most
	})
}

func TestOptionsAreValidated(t *testing.T) {
	for name, c := range map[string]struct {
		key  ycloud.Secret
		opts *ycloud.Options
	}{
		"no key":     {"", nil},
		"bad key":    {"a\nb", nil},
		"plain http": {key, &ycloud.Options{BaseURL: "http://api.example.com/v2"}},
		"no host":    {key, &ycloud.Options{BaseURL: "v2"}},
		"query":      {key, &ycloud.Options{BaseURL: "https://api.example.com/v2?x=1"}},
		"user":       {key, &ycloud.Options{BaseURL: "https://u:p@api.example.com/v2"}},
		"timeout":    {key, &ycloud.Options{Timeout: -1}},
	} {
		if _, err := ycloud.New(c.key, c.opts); !errors.Is(err, reconcile.ErrInvalid) || strings.Contains(err.Error(), "example") {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := ycloud.New(key, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(ycloud.Secret(key))
	if s := fmt.Sprintf("%v %+v %#v %s", ycloud.Secret(key), struct{ S ycloud.Secret }{key}, ycloud.Secret(key), text); strings.Contains(s, key) {
		t.Errorf("printed %s", s)
	}
	_ = c
}
