package inboxtest

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/seed"
)

// Storm delivers bodies to a webhook endpoint as a bad day does, and fails the
// test where the endpoint does not stand it. Every body of the corpus is delivered
// once; beside that come duplicates, broken bodies that are signed, forgeries, and
// at last replays of what was delivered before; out of order, with delays, and
// several at once. It works on any [http.Handler] and takes any provider's bodies.
//
// It fails the test when
//
//   - a delivery or a duplicate is not answered with 2xx,
//   - a forgery is answered with 2xx,
//   - a broken body, a forgery or a replay is answered with 5xx,
//   - the handler panics or gives no answer,
//   - and, if Effects is set, when an event of a body that was answered with 2xx had
//     its effect not exactly once, or an effect was of no event of the corpus.
//
// What it does not show: that effects come in order, and that anything survives a
// crash. A broken body may be answered with 2xx or 4xx, and so may a replay, whose
// signature some providers limit in time: what counts is that it has no effect.
//
// The same seed makes the same deliveries in the same order. How those under way
// at the same time overlap is the scheduler's, unless Callers is 1. A
// failure names the seed, the body's name and the kind of delivery; it never shows
// a body or an event's ID, since a corpus may be of real ones.
func Storm(t testing.TB, c StormConfig) StormReport {
	t.Helper()
	if reason := c.withDefaults(); reason != "" {
		t.Fatalf("inboxtest: Storm: %s", reason)
	}
	s := &storm{StormConfig: c, rnd: rand.New(rand.NewPCG(c.Seed, 0)), client: &http.Client{
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	s.deliverAll(s.plan())
	if !c.Bubble {
		s.deliverAll(s.replays(time.Now().Add(-c.ReplayAge)))
	} else if late := s.replays(time.Now()); len(late) > 0 {
		time.Sleep(c.ReplayAge)
		s.deliverAll(late)
	}
	s.client.CloseIdleConnections()
	r := s.report()
	s.judge(t)
	if c.Effects != nil {
		s.compare(t, c.Effects(), r)
	}
	if c.Check != nil {
		c.Check(r)
	}
	return r
}

// StormConfig sets up a [Storm]. The numbers are per body of the corpus: zero means
// the default, less than zero none.
type StormConfig struct {
	// Handler is the endpoint. It is called without a network.
	Handler http.Handler
	// URL is a running endpoint in place of Handler: that of an [httptest.Server], or
	// of your service as it is deployed for tests.
	URL string
	// Path is the path, and the query if there is one, at which Handler is called.
	// Empty: "/".
	Path string

	// Corpus is what the provider sends; at least one body.
	Corpus []Body
	// Sign returns what the provider sends with a body to prove that it is his, as
	// signed at a time. It is called with broken bodies, too, from several goroutines.
	// Nil: nothing, and no forgeries are sent.
	Sign func(body []byte, at time.Time) Signature
	// Forge returns what a stranger could send with a body instead. Nil: once
	// nothing, once the provider's signature of another body. Set it if the provider
	// does not sign the body.
	Forge func(body []byte, at time.Time) []Signature

	// Duplicates is how often a body is delivered again: the first of them at the same
	// moment, the next some time later, and so on in turn. Default: 2.
	Duplicates int
	// Malformed is how many deliveries of a body are broken and signed all the same:
	// cut off, empty, doubled, nested deeply, of another type. Default: 2.
	Malformed int
	// Forged is how many deliveries of a body are signed wrongly. Default: 2.
	Forged int
	// Replays is how often a body is delivered when all is over, as it was signed
	// ReplayAge before. Default: 1.
	Replays int
	// ReplayAge is the age of replays. Zero: 6 hours.
	ReplayAge time.Duration
	// Bubble says that Storm is called in a [testing/synctest] bubble: it really
	// waits ReplayAge before the replays, so that the service's own times pass.
	// Otherwise they are signed for a time so long ago. Do not set URL with it.
	Bubble bool

	// InOrder delivers the bodies in the order of the corpus and one at a time, for an
	// endpoint whose provider does so; what comes beside them is anywhere.
	InOrder bool
	// Callers is how many deliveries are under way at once, not counting duplicates
	// that come at the same moment. Zero: 4. With one, nothing comes at the same moment.
	Callers int
	// Delay is the longest pause before a delivery. Zero: none.
	Delay time.Duration
	// Redeliver is how often a delivery is sent again that was answered with 5xx, as
	// providers do; the last answer counts. Zero: never. Set it when the store
	// behind the endpoint fails on purpose ([Faulty]).
	Redeliver int
	// Seed decides everything that is left to chance. Zero: 1, or what the environment
	// variable PAWL_SEED says.
	Seed uint64

	// Effects is called when everything was answered. It waits until the service has
	// worked what it has accepted, and returns how often each event had its effect,
	// by the names that the bodies give their events. Nil: effects are not compared.
	Effects func() map[string]int
	// Check is called last. Nil: nothing is.
	Check func(StormReport)
}

// A Body is one body of a corpus.
type Body struct {
	// Name is what failures call the body. Empty: its number in the corpus.
	Name    string
	Content []byte
	// ContentType is the request's. Empty: application/json.
	ContentType string
	// Events are the names of all events in the body that must have an effect. Two
	// bodies may have an event in common, which has one effect then.
	Events []string
}

// A Signature is what proves where a body comes from. Both are added to the request
// and replace what is there by the same name.
type Signature struct {
	Header http.Header
	Query  url.Values
}

// A StormReport is what a [Storm] has done.
type StormReport struct {
	Seed uint64
	// Answers counts the deliveries by kind and status; a status of zero is no answer
	// or a panic.
	Answers map[StormKind]map[int]int
	// Acknowledged are the bodies of which a delivery was answered with 2xx, each
	// once, in the order of the corpus.
	Acknowledged []Body
	// Events are the names of their events, each once, in that order.
	Events []string
}

// StormKind is the kind of a delivery in a [Storm].
type StormKind string

// The kinds of delivery.
const (
	StormGood      StormKind = "good"
	StormDuplicate StormKind = "duplicate"
	StormMalformed StormKind = "malformed"
	StormForged    StormKind = "forged"
	StormReplay    StormKind = "replay"
)

// Sent is how many deliveries of a kind there were, those sent again not counted.
func (r StormReport) Sent(k StormKind) (n int) {
	for _, times := range r.Answers[k] {
		n += times
	}
	return n
}

// withDefaults completes the configuration and says what is wrong with it.
func (c *StormConfig) withDefaults() (reason string) {
	switch {
	case (c.Handler == nil) == (c.URL == ""):
		return "exactly one of Handler and URL is needed"
	case len(c.Corpus) == 0:
		return "the corpus is empty: nothing would be tested"
	case c.Path != "" && c.Path[0] != '/':
		return "Path does not begin with a slash"
	case c.Path != "" && c.URL != "":
		return "Path is for Handler; put it into URL"
	case c.Bubble && c.URL != "":
		return "a bubble has no network"
	case c.ReplayAge < 0 || c.Delay < 0 || c.Callers < 0 || c.Redeliver < 0:
		return "a negative ReplayAge, Delay, Callers or Redeliver"
	}
	target := c.URL
	if target == "" {
		target = c.Path
	}
	if _, err := url.ParseRequestURI(target); target != "" && err != nil {
		return "Path or URL cannot be parsed"
	}
	for n, standard := range map[*int]int{&c.Duplicates: 2, &c.Malformed: 2, &c.Forged: 2, &c.Replays: 1} {
		if *n == 0 {
			*n = standard
		}
		*n = max(*n, 0)
	}
	if c.Sign == nil {
		c.Sign = func([]byte, time.Time) Signature { return Signature{} }
		if c.Forge == nil {
			c.Forged = 0
		}
	}
	if c.Forge == nil {
		c.Forge = c.forgeries
	}
	if c.Path == "" {
		c.Path = "/"
	}
	if c.ReplayAge == 0 {
		c.ReplayAge = 6 * time.Hour
	}
	if c.Callers == 0 {
		c.Callers = 4
	}
	if c.InOrder {
		c.Callers = 1
	}
	if c.Seed == 0 {
		c.Seed = seed.One()
	}
	return ""
}
