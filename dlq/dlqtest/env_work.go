package dlqtest

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"github.com/pawl-go/pawl/dlq"
)

// failedAt is some time of a worker's clock, to the microsecond, as it is kept.
var failedAt = time.Date(2026, 11, 30, 12, 0, 0, 123456000, time.UTC)

func failure(print, detail string) dlq.Failure {
	return dlq.Failure{At: failedAt, Fingerprint: print, Detail: []byte(detail)}
}

// letter makes a letter that failed once and is due at once.
func letter(id, key string) dlq.Put {
	body := []byte("body of " + id)
	return dlq.Put{
		Nonce: nonce(), Stream: stream, ID: id, Key: key, Body: body, Digest: sha256.Sum256(body), Failure: failure(printA, "made it"),
	}
}

// parked makes a letter that is only to be stored behind others.
func parked(id, key string) dlq.Put {
	l := letter(id, key)
	l.Failure, l.IfBlocked = dlq.Failure{}, true
	return l
}

// put sends letters in one batch and returns their answers.
func (e *env) put(letters ...dlq.Put) []dlq.Answer {
	e.Helper()
	answers, err := e.store.Put(context.Background(), e.p, letters)
	if err != nil {
		e.Fatalf("Put of %d letters: %v", len(letters), err)
	}
	if len(answers) != len(letters) {
		e.Fatalf("Put of %d letters returned %d answers", len(letters), len(answers))
	}
	return answers
}

// answered sends one letter and checks its answer.
func (e *env) answered(want dlq.Answer, l dlq.Put) {
	e.Helper()
	if got := e.put(l)[0]; got != want {
		e.Fatalf("the letter %q was answered %v, want %v", l.ID, got, want)
	}
}

// letters puts letters of one key, each in a batch of its own and later than the last.
func (e *env) letters(key string, ids ...string) {
	e.Helper()
	for _, id := range ids {
		e.answered(dlq.Added, letter(id, key))
		e.tick()
	}
}

// newAsk makes an ask of a new call for up to 100 lanes.
func newAsk() dlq.Ask {
	return dlq.Ask{Nonce: nonce(), Stream: stream, N: 100, Bytes: 1 << 20, Lease: longLease}
}

// ask sends an ask.
func (e *env) ask(a dlq.Ask) dlq.Claimed {
	e.Helper()
	c, err := e.store.Claim(context.Background(), a)
	if err != nil {
		e.Fatalf("Claim: %v", err)
	}
	if len(c.Claims) > a.N {
		e.Fatalf("Claim of %d lanes returned %d", a.N, len(c.Claims))
	}
	for _, k := range c.Claims {
		if k.Record.Stream != a.Stream || k.Token == 0 || k.Record.State != dlq.StateWaiting || k.Record.Lane() != k.Lane {
			e.Fatalf("Claim returned the lane %q, token %d, and the %v letter %q of lane %q in stream %q",
				k.Lane, k.Token, k.Record.State, k.Record.ID, k.Record.Lane(), k.Record.Stream)
		}
	}
	return c
}

// claim claims as a new caller, and must get one letter.
func (e *env) claim(id string) dlq.Claim {
	e.Helper()
	return e.claimFor(id, longLease)
}

func (e *env) claimFor(id string, lease time.Duration) dlq.Claim {
	e.Helper()
	a := newAsk()
	a.Lease = lease
	c := e.ask(a).Claims
	if len(c) != 1 || c[0].Record.ID != id {
		e.Fatalf("a claim got the letters %q, want %q", claimedIDs(c), id)
	}
	return c[0]
}

// lapsed claims a letter and lets its lease run out.
func (e *env) lapsed(id string) dlq.Claim {
	e.Helper()
	c := e.claimFor(id, e.short)
	e.wait()
	return c
}

// nothing claims as a new caller and must get nothing.
func (e *env) nothing() {
	e.Helper()
	e.claimable()
}

// claimable claims as a new caller and checks what it gets, in any order.
func (e *env) claimable(ids ...string) []dlq.Claim {
	e.Helper()
	c := e.ask(newAsk()).Claims
	got := claimedIDs(c)
	slices.Sort(got)
	if !slices.Equal(got, ids) {
		e.Fatalf("a claim got the letters %q, want %q", got, ids)
	}
	return c
}

func claimedIDs(claims []dlq.Claim) (ids []string) {
	for _, c := range claims {
		ids = append(ids, c.Record.ID)
	}
	return ids
}

// settlement makes the settlement of kind k of a claim.
func settlement(k dlq.Kind, c dlq.Claim) dlq.Settlement {
	s := dlq.Settlement{Kind: k, Stream: c.Record.Stream, Lane: c.Lane, Token: c.Token, Seq: c.Record.Seq}
	switch k {
	case dlq.KindExtend:
		s.Lease = longLease
	case dlq.KindRetry, dlq.KindReview:
		s.Failure = failure(printA, "failed again")
	}
	return s
}

func resolve(c dlq.Claim) dlq.Settlement { return settlement(dlq.KindResolve, c) }
func review(c dlq.Claim) dlq.Settlement  { return settlement(dlq.KindReview, c) }
func release(c dlq.Claim) dlq.Settlement { return settlement(dlq.KindRelease, c) }

func retry(c dlq.Claim, delay time.Duration) dlq.Settlement {
	s := settlement(dlq.KindRetry, c)
	s.Delay = delay
	return s
}

// settle sends settlements in one batch and returns one error for each.
func (e *env) settle(s ...dlq.Settlement) []error {
	e.Helper()
	errs, err := e.store.Settle(context.Background(), e.p, s)
	if err != nil {
		e.Fatalf("Settle of %d: %v", len(s), err)
	}
	if errs == nil {
		return make([]error, len(s))
	}
	if len(errs) != len(s) {
		e.Fatalf("Settle of %d returned %d errors, want one for each or a nil slice", len(s), len(errs))
	}
	for i, err := range errs {
		if err != nil && !errors.Is(err, dlq.ErrStale) {
			e.Fatalf("%v of %q (%d of %d): %v", s[i].Kind, s[i].Lane, i, len(s), err)
		}
	}
	return errs
}

// applied sends settlements that must all succeed.
func (e *env) applied(s ...dlq.Settlement) {
	e.Helper()
	for i, err := range e.settle(s...) {
		if err != nil {
			e.Fatalf("%v of %d in lane %q (%d of %d) was not applied: %v", s[i].Kind, s[i].Seq, s[i].Lane, i, len(s), err)
		}
	}
}

// stale sends settlements that must all be refused.
func (e *env) stale(s ...dlq.Settlement) {
	e.Helper()
	for i, err := range e.settle(s...) {
		if err == nil {
			e.Fatalf("%v of %d in lane %q with token %d was applied, want ErrStale", s[i].Kind, s[i].Seq, s[i].Lane, s[i].Token)
		}
	}
}

// reviewed brings a letter that can be claimed, alone, into review.
func (e *env) reviewed(id string) {
	e.Helper()
	e.applied(review(e.claim(id)))
}
