package inboxtest_test

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/inboxtest"
	"github.com/pawl-go/pawl/inbox/whatsapp"
)

// A service is an endpoint that stores, deduplicates and works in one step, and
// that can be broken.
type service struct {
	mu      sync.Mutex
	seen    map[string]time.Time
	effects map[string]int
	bodies  []string // as they came, with a valid signature

	unverified   bool          // lets everything through
	lenient      bool          // lets through what has no signature
	ackFirst     bool          // answers before it stores, and storing fails now and then
	again        bool          // works duplicates, too
	racy         bool          // looks and then stores
	firstOnly    bool          // loses all entries but the first
	errs, panics bool          // on bodies that cannot be decoded
	exits        bool          // gives no answer to them
	rejects      int           // what it answers without a valid signature; zero: 401
	refuses      bool          // refuses duplicates
	retention    time.Duration // of what was seen; zero: for ever
	tolerance    time.Duration // of signatures; zero: no limit
	fails        int           // answers 503 to every so-manyth delivery
	deliveries   int
}

const secret = "the secret"

func sign(body []byte, at time.Time) inboxtest.Signature {
	stamp := at.UTC().Format(time.RFC3339)
	return inboxtest.Signature{Header: http.Header{"x-signature": {mac(stamp, body)}}, Query: url.Values{"at": {stamp}}}
}

func mac(stamp string, body []byte) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(stamp))
	h.Write(body)
	return hex.EncodeToString(h.Sum(nil))
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	stamp, got := r.URL.Query().Get("at"), r.Header.Get("X-Signature")
	signed := hmac.Equal([]byte(mac(stamp, body)), []byte(got))
	if at, err := time.Parse(time.RFC3339, stamp); s.tolerance > 0 && (err != nil || time.Since(at) > s.tolerance) {
		signed = false
	}
	if !signed && !s.unverified && !(s.lenient && got == "") {
		w.WriteHeader(cmp.Or(s.rejects, 401))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bodies = append(s.bodies, string(body))
	if s.deliveries++; s.fails > 0 && s.deliveries%s.fails == 0 {
		w.WriteHeader(503)
		return
	}
	var b struct{ Entries []struct{ ID string } }
	if err := json.Unmarshal(body, &b); err != nil {
		switch {
		case s.panics:
			panic(err)
		case s.exits:
			s.mu.Unlock()
			defer s.mu.Lock()
			runtime.Goexit()
		case s.errs:
			w.WriteHeader(500)
		default:
			w.WriteHeader(400)
		}
		return
	}
	for i, e := range b.Entries {
		if s.firstOnly && i > 0 || s.ackFirst && len(s.effects) == 3 {
			continue
		}
		at, duplicate := s.seen[e.ID]
		duplicate = duplicate && (s.retention == 0 || time.Since(at) < s.retention)
		if s.racy {
			s.mu.Unlock()
			time.Sleep(time.Millisecond)
			s.mu.Lock()
		}
		if duplicate && s.refuses {
			w.WriteHeader(409)
			return
		}
		if !duplicate || s.again {
			s.seen[e.ID] = time.Now()
			s.effects[e.ID]++
		}
	}
}

func (s *service) count() map[string]int { return s.effects }

// corpus has bodies of two events each, and one that shares an event.
func corpus() (all []inboxtest.Body) {
	for i := range 12 {
		a, b := fmt.Sprint("customer-", 2*i), fmt.Sprint("customer-", 2*i+1)
		all = append(all, inboxtest.Body{
			Name: fmt.Sprint("pair ", i), Content: fmt.Appendf(nil, `{"entries": [{"id": %q}, {"id": %q}]}`+"\n", a, b), Events: []string{a, b},
		})
	}
	return append(all, inboxtest.Body{Content: []byte(`{"entries": [{"id": "customer-0"}]}`), Events: []string{"customer-0"}})
}

// A witness is a test that may fail.
type witness struct {
	testing.TB
	mu     sync.Mutex
	errs   []string
	fatals int
}

func (w *witness) Helper() {}

func (w *witness) Errorf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = append(w.errs, fmt.Sprintf(format, args...))
}

func (w *witness) Fatalf(format string, args ...any) {
	w.Errorf(format, args...)
	w.fatals++
	runtime.Goexit()
}

// storm runs a storm in a bubble and returns what it found.
func storm(t *testing.T, set func(*service, *inboxtest.StormConfig)) (found []string, r inboxtest.StormReport, s *service) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s = &service{seen: map[string]time.Time{}, effects: map[string]int{}}
		c := inboxtest.StormConfig{Handler: s, Corpus: corpus(), Sign: sign, Effects: s.count, Bubble: true, Delay: time.Second}
		if set != nil {
			set(s, &c)
		}
		w := &witness{TB: t}
		var wg sync.WaitGroup
		wg.Go(func() { r = inboxtest.Storm(w, c) })
		wg.Wait()
		found = w.errs
	})
	return found, r, s
}

func TestStormOnAGoodService(t *testing.T) {
	t.Parallel()
	checked := false
	found, r, s := storm(t, func(_ *service, c *inboxtest.StormConfig) {
		c.Check = func(inboxtest.StormReport) { checked = true }
	})
	if len(found) > 0 || !checked {
		t.Fatalf("a good service failed (checked: %t):\n%s", checked, strings.Join(found, "\n"))
	}
	for k, want := range map[inboxtest.StormKind]int{
		inboxtest.StormGood: 13, inboxtest.StormDuplicate: 26, inboxtest.StormMalformed: 26, inboxtest.StormForged: 26, inboxtest.StormReplay: 13,
	} {
		if got := r.Sent(k); got != want {
			t.Errorf("%d deliveries were sent (%s), want %d", got, k, want)
		}
	}
	if got := r.Answers[inboxtest.StormForged]; !reflect.DeepEqual(got, map[int]int{401: 26}) {
		t.Errorf("forgeries were answered %v", got)
	}
	if r.Seed == 0 || len(r.Acknowledged) != 13 || len(r.Events) != 24 || len(s.effects) != 24 {
		t.Errorf("the report is %+v", r)
	}
	distinct := map[string]bool{}
	for _, b := range s.bodies {
		distinct[b] = true
	}
	if len(distinct) < 13+8 {
		t.Errorf("%d distinct bodies came, so few ways to break one were tried", len(distinct))
	}
}

// TestStormFindsBrokenServices holds that each of them fails, for its reason.
func TestStormFindsBrokenServices(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		set  func(*service, *inboxtest.StormConfig)
		want string
	}{
		"acknowledges before storing": {func(s *service, _ *inboxtest.StormConfig) { s.ackFirst = true }, "was acknowledged and had no effect"},
		"works duplicates twice":      {func(s *service, _ *inboxtest.StormConfig) { s.again = true }, "had its effect"},
		"looks and then stores":       {func(s *service, _ *inboxtest.StormConfig) { s.racy = true }, "had its effect 2 times"},
		"looks and then stores, without delay": {func(s *service, c *inboxtest.StormConfig) {
			s.racy, c.Delay = true, 0
		}, "had its effect"},
		"lets forgeries through":     {func(s *service, _ *inboxtest.StormConfig) { s.unverified = true }, "answered 200, want 4xx"},
		"lets the unsigned through":  {func(s *service, _ *inboxtest.StormConfig) { s.lenient = true }, "answered 200, want 4xx"},
		"loses the second entry":     {func(s *service, _ *inboxtest.StormConfig) { s.firstOnly = true }, "event 2 of 2 of pair 0 was acknowledged and had no effect"},
		"500 on malformed":           {func(s *service, _ *inboxtest.StormConfig) { s.errs = true }, "answered 500, want 2xx or 4xx"},
		"panics on malformed":        {func(s *service, _ *inboxtest.StormConfig) { s.panics = true }, "a panic with a value of type *json.SyntaxError"},
		"no answer to malformed":     {func(s *service, _ *inboxtest.StormConfig) { s.exits = true }, "no answer, want"},
		"callers that are all gone":  {func(s *service, _ *inboxtest.StormConfig) { s.exits = true }, "it was not sent"},
		"refuses duplicates":         {func(s *service, _ *inboxtest.StormConfig) { s.refuses = true }, "(duplicate) of pair"},
		"forgets before the replays": {func(s *service, _ *inboxtest.StormConfig) { s.retention = time.Hour }, "had its effect 2 times"},
		"a store that fails":         {func(s *service, _ *inboxtest.StormConfig) { s.fails = 5 }, "answered 503, want 2xx"},
		"500 on forgeries":           {func(s *service, c *inboxtest.StormConfig) { s.rejects = 500 }, "(forged) of"},
		"500 on replays": {func(s *service, c *inboxtest.StormConfig) {
			s.rejects, s.tolerance, c.Forged = 500, time.Hour, -1
		}, "(replay) of"},
		"redirects": {func(s *service, c *inboxtest.StormConfig) {
			c.Handler = http.RedirectHandler("/elsewhere", http.StatusPermanentRedirect)
		}, "(good) of"},
		"effects of nothing": {func(s *service, c *inboxtest.StormConfig) {
			c.Effects = func() map[string]int { s.effects["customer-forged"] = 2; return s.effects }
		}, "an effect (2 times) is of no event of the corpus"},
		"forged by the user": {func(s *service, c *inboxtest.StormConfig) {
			c.Forge = func(b []byte, at time.Time) []inboxtest.Signature { return []inboxtest.Signature{sign(b, at)} }
			c.Corpus = c.Corpus[12:]
		}, "(forged) of body 0 of the corpus: answered 200, want 4xx"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, r, _ := storm(t, func(s *service, c *inboxtest.StormConfig) {
				tt.set(s, c)
			})
			if !slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, tt.want) }) {
				t.Fatalf("%q is not among what was found:\n%s", tt.want, strings.Join(found, "\n"))
			}
			if len(found) > 5*6 {
				t.Errorf("%d findings were reported", len(found))
			}
			for _, f := range found {
				if strings.Contains(f, "customer") || strings.Contains(f, "entries") || strings.Contains(f, secret) {
					t.Errorf("a finding shows a body, a name or a secret: %s", f)
				}
				if !strings.Contains(f, fmt.Sprint("storm ", r.Seed, ": ")) {
					t.Errorf("a finding does not name the seed: %s", f)
				}
			}
		})
	}
}

func TestStormSendsAgainWhatWasRefused(t *testing.T) {
	t.Parallel()
	found, r, s := storm(t, func(s *service, c *inboxtest.StormConfig) { s.fails, c.Redeliver = 3, 10 })
	if len(found) > 0 || s.deliveries <= r.Sent(inboxtest.StormGood)+r.Sent(inboxtest.StormDuplicate) {
		t.Fatalf("a store that fails now and then, in front of redeliveries:\n%s", strings.Join(found, "\n"))
	}
}

func TestStormReplaysWhatIsOld(t *testing.T) {
	t.Parallel()
	for _, bubble := range []bool{true, false} {
		found, r, _ := storm(t, func(s *service, c *inboxtest.StormConfig) {
			s.tolerance, c.Bubble = 5*time.Minute, bubble
		})
		if len(found) > 0 {
			t.Fatalf("a service that limits signatures in time failed:\n%s", strings.Join(found, "\n"))
		}
		if got := r.Answers[inboxtest.StormReplay]; !reflect.DeepEqual(got, map[int]int{401: 13}) {
			t.Fatalf("replays were answered %v", got)
		}
	}
}

func TestStormIsRepeatable(t *testing.T) {
	t.Parallel()
	run := func(seed uint64, set func(*inboxtest.StormConfig)) []string {
		_, _, s := storm(t, func(_ *service, c *inboxtest.StormConfig) {
			c.Seed, c.Callers = seed, 1
			if set != nil {
				set(c)
			}
		})
		return s.bodies
	}
	first := run(1, nil)
	if !slices.Equal(first, run(1, nil)) {
		t.Error("the same seed made other deliveries")
	}
	if slices.Equal(first, run(2, nil)) {
		t.Error("another seed made the same deliveries")
	}
	none := func(c *inboxtest.StormConfig) { c.Duplicates, c.Malformed, c.Forged, c.Replays = -1, -1, -1, -1 }
	var want []string
	for _, b := range corpus() {
		want = append(want, string(b.Content))
	}
	shuffled := run(3, none)
	if slices.Equal(shuffled, want) || len(shuffled) != len(want) {
		t.Errorf("the bodies came as %q", shuffled)
	}
	if got := run(3, func(c *inboxtest.StormConfig) { none(c); c.InOrder = true }); !slices.Equal(got, want) {
		t.Errorf("in order the bodies came as %q", got)
	}
	ordered := run(4, func(c *inboxtest.StormConfig) { c.InOrder = true })
	last := -1
	for i, w := range want {
		at := slices.Index(ordered, w)
		if at <= last {
			t.Errorf("body %d came first at place %d, and the one before at %d", i, at, last)
		}
		last = at
	}
}

func TestStormBreaksNoOtherBodies(t *testing.T) {
	t.Parallel()
	// Of a form, a part could mean another event: it is replaced and never cut.
	form := inboxtest.Body{Content: []byte("id=customer-1"), ContentType: "application/x-www-form-urlencoded", Events: []string{"customer-1"}}
	effects := map[string]int{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id := r.PostFormValue("id"); id != "" {
			effects[id] = 1
		}
	})
	inboxtest.Storm(t, inboxtest.StormConfig{
		Handler: handler, Corpus: []inboxtest.Body{form}, Malformed: 50, Callers: 1, Effects: func() map[string]int { return effects },
	})
}

func TestStormOverTheNetwork(t *testing.T) {
	t.Parallel()
	s := &service{seen: map[string]time.Time{}, effects: map[string]int{}}
	server := httptest.NewServer(s)
	defer server.Close()
	r := inboxtest.Storm(t, inboxtest.StormConfig{URL: server.URL + "/hook?x=1", Corpus: corpus(), Sign: sign, Effects: s.count})
	if r.Sent(inboxtest.StormGood) != 13 || len(r.Acknowledged) != 13 {
		t.Errorf("the report is %+v", r)
	}
	w := &witness{TB: t}
	server.Close()
	inboxtest.Storm(w, inboxtest.StormConfig{URL: server.URL + "/hook?token=abc", Corpus: corpus(), Sign: sign})
	if len(w.errs) == 0 || strings.Contains(strings.Join(w.errs, ""), "abc") {
		t.Errorf("an endpoint that is gone:\n%s", strings.Join(w.errs, "\n"))
	}
}

func TestStormWithoutSignatures(t *testing.T) {
	t.Parallel()
	found, r, _ := storm(t, func(s *service, c *inboxtest.StormConfig) { s.unverified, c.Sign = true, nil })
	if len(found) > 0 || r.Sent(inboxtest.StormForged) != 0 {
		t.Fatalf("an endpoint without signatures got %d forgeries:\n%s", r.Sent(inboxtest.StormForged), strings.Join(found, "\n"))
	}
}

func TestStormRefusesAConfiguration(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*inboxtest.StormConfig){
		"no handler":      func(c *inboxtest.StormConfig) { c.Handler = nil },
		"handler and URL": func(c *inboxtest.StormConfig) { c.URL = "http://localhost" },
		"no corpus":       func(c *inboxtest.StormConfig) { c.Corpus = nil },
		"a relative path": func(c *inboxtest.StormConfig) { c.Path = "hook" },
		"a bad path":      func(c *inboxtest.StormConfig) { c.Path = "/%zz" },
		"a bad URL":       func(c *inboxtest.StormConfig) { c.Handler, c.Bubble, c.URL = nil, false, "::" },
		"URL in a bubble": func(c *inboxtest.StormConfig) { c.Handler, c.URL = nil, "http://localhost" },
		"URL and path": func(c *inboxtest.StormConfig) {
			c.Handler, c.Bubble, c.URL, c.Path = nil, false, "http://localhost", "/"
		},
		"a negative time": func(c *inboxtest.StormConfig) { c.Delay = -1 },
	} {
		found, r, s := storm(t, func(_ *service, c *inboxtest.StormConfig) { set(c) })
		if len(found) != 1 || r.Seed != 0 || s.deliveries != 0 {
			t.Errorf("%s: found %q, report %+v", name, found, r)
		}
	}
}

// TestStormOnAnInbox puts a storm in front of a box whose store fails before and
// after every step, again and again: the deliveries are answered with 503 and sent
// again, and every effect happens once.
func TestStormOnAnInbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		var mu sync.Mutex
		fail := func(inboxtest.Step) error {
			mu.Lock()
			defer mu.Unlock()
			if n++; n%4 == 0 {
				return inboxtest.ErrFault
			}
			return nil
		}
		store := &inboxtest.Faulty{Store: inbox.NewMemory(), Before: fail, After: fail}
		box, err := inbox.New(store, nil)
		if err != nil {
			t.Fatal(err)
		}
		source, err := whatsapp.New(&whatsapp.Options{Secrets: []whatsapp.Secret{{Value: secret}}})
		if err != nil {
			t.Fatal(err)
		}
		hook, err := inbox.Handler(box, source, nil)
		if err != nil {
			t.Fatal(err)
		}
		var bodies []inboxtest.Body
		for i := range 20 {
			id := fmt.Sprint("wamid.", i)
			bodies = append(bodies, inboxtest.Body{
				Content: fmt.Appendf(nil, `{"object": "whatsapp_business_account", "entry": [{"id": "41", "changes": [{"field": "messages", "value": {
					"metadata": {"display_phone_number": "15550008000", "phone_number_id": "31"},
					"messages": [{"from": "15550003001", "id": %q, "timestamp": "1760000000", "type": "text", "text": {"body": "Hello"}}]}}]}]}`, id),
				Events: []string{"meta/messages/messages/" + id},
			})
		}
		effects := map[string]int{}
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() {
			stopped <- box.Work(ctx, func(ctx context.Context, r inbox.Record) inbox.Outcome {
				mu.Lock()
				defer mu.Unlock()
				effects[r.ID] = 1 // idempotent: a lost answer of the store repeats it
				return inbox.Done()
			}, nil)
		}()
		r := inboxtest.Storm(t, inboxtest.StormConfig{
			Handler: hook, Corpus: bodies, Bubble: true, Redeliver: 100, Delay: time.Second,
			Sign: func(body []byte, _ time.Time) inboxtest.Signature {
				return inboxtest.Signature{Header: http.Header{"X-Hub-Signature-256": {whatsapp.Sign(secret, body)}}}
			},
			Effects: func() map[string]int {
				time.Sleep(time.Hour)
				stop()
				if err := <-stopped; err != nil {
					t.Error(err)
				}
				return effects
			},
		})
		if box.Stats().Refused == 0 || len(r.Events) != 20 {
			t.Errorf("%d deliveries were refused and %d events acknowledged", box.Stats().Refused, len(r.Events))
		}
	})
}
