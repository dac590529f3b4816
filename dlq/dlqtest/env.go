package dlqtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pawl-go/pawl/dlq"
)

// What must not end during a subtest lasts longer than any of them takes.
const (
	longLease     = time.Hour
	longRetention = 24 * time.Hour
	longAudit     = 48 * time.Hour
)

// stream is the stream of all subtests but those about streams.
const stream = "orders"

// Fingerprints of failures.
const (
	printA = "aaaa"
	printB = "bbbb"
)

// An env is what one subtest works with: an empty store and its clock. Its helpers
// end the subtest when the store does not answer.
type env struct {
	*testing.T
	c       Config
	store   dlq.Store
	p       dlq.Params
	short   time.Duration       // a lease, delay or retention that wait outlasts
	sleep   func(time.Duration) // moves the store's clock
	virtual bool                // sleeping takes no time, and nothing else does
}

func (c Config) env(t *testing.T, twice bool) *env {
	e := &env{
		T: t, c: c, store: c.New(t), p: dlq.Params{Retention: longRetention, Audit: longAudit, Capacity: 10_000},
		short: 100 * time.Millisecond, sleep: c.Sleep, virtual: c.Bubble || c.Sleep != nil,
	}
	if e.store == nil {
		t.Fatal("dlqtest: Config.New returned nil")
	}
	if e.sleep == nil {
		e.sleep = time.Sleep
	}
	if e.virtual {
		e.short = time.Minute
	}
	if twice {
		e.store = &twiceStore{Store: e.store, t: t, virtual: e.virtual}
	}
	return e
}

// wait outlasts a lease or a delay of e.short, whatever the machine is doing.
func (e *env) wait() { e.sleep(2 * e.short) }

// tick makes the store's clock move on, so that what comes next is later even where
// virtual time stands still between two calls.
func (e *env) tick() { e.sleep(time.Millisecond) }

func nonce() (n [16]byte) {
	rand.Read(n[:])
	return n
}

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

// change makes the change of kind k of a letter.
func change(k dlq.ChangeKind, r dlq.Record) dlq.Change {
	c := dlq.Change{Kind: k, Nonce: nonce(), Stream: r.Stream, ID: r.ID, Seq: r.Seq, Actor: "ana", Reason: "because"}
	switch k {
	case dlq.ChangeEdit:
		c.Body = []byte("edited body of " + r.ID)
		c.After = sha256.Sum256(c.Body)
	case dlq.ChangeNote:
		c.Verb = "reveal"
	}
	return c
}

// send sends changes in one batch and returns one error for each.
func (e *env) send(changes ...dlq.Change) []error {
	e.Helper()
	errs, err := e.store.Change(context.Background(), e.p, changes)
	if err != nil {
		e.Fatalf("Change of %d: %v", len(changes), err)
	}
	if errs == nil {
		return make([]error, len(changes))
	}
	if len(errs) != len(changes) {
		e.Fatalf("Change of %d returned %d errors, want one for each or a nil slice", len(changes), len(errs))
	}
	return errs
}

// changed sends changes that must all be applied.
func (e *env) changed(changes ...dlq.Change) {
	e.Helper()
	for i, err := range e.send(changes...) {
		if err != nil {
			e.Fatalf("%v of %q (%d of %d) was not applied: %v", changes[i].Kind, changes[i].ID, i, len(changes), err)
		}
	}
}

// refused sends one change that must be refused.
func (e *env) refused(want error, c dlq.Change) {
	e.Helper()
	if err := e.send(c)[0]; !errors.Is(err, want) {
		e.Fatalf("%v of %q was answered %v, want %v", c.Kind, c.ID, err, want)
	}
}

// does changes the newest letter of an ID.
func (e *env) does(k dlq.ChangeKind, id string) {
	e.Helper()
	e.changed(change(k, e.record(id)))
}

// record returns the newest letter of an ID.
func (e *env) record(id string) dlq.Record {
	e.Helper()
	rs := e.list(dlq.Query{ID: id})
	if len(rs) == 0 {
		e.Fatalf("there is no letter %q", id)
	}
	return rs[len(rs)-1]
}

// wantState checks the state and the tries of the newest letter of an ID.
func (e *env) wantState(id string, s dlq.State, tries int) dlq.Record {
	e.Helper()
	r := e.record(id)
	if r.State != s || r.Tries != tries {
		e.Fatalf("the letter %q is %v after %d tries, want %v after %d", id, r.State, r.Tries, s, tries)
	}
	return r
}

// list lists all letters that a query selects.
func (e *env) list(q dlq.Query) (all []dlq.Record) {
	e.Helper()
	if q.Stream == "" {
		q.Stream = stream
	}
	if q.N == 0 {
		q.N = 100
	}
	for {
		p, err := e.store.List(context.Background(), q)
		if err != nil {
			e.Fatalf("List: %v", err)
		}
		if len(p.Records) > q.N {
			e.Fatalf("List of %d letters returned %d", q.N, len(p.Records))
		}
		for i, r := range p.Records {
			if r.Seq <= q.After || i > 0 && r.Seq <= p.Records[i-1].Seq {
				e.Fatalf("List behind %d returned the number %d in the %d. place", q.After, r.Seq, i)
			}
		}
		all = append(all, p.Records...)
		if p.Next == 0 {
			return all
		}
		if p.Next <= q.After {
			e.Fatalf("List behind %d goes on behind %d", q.After, p.Next)
		}
		q.After = p.Next
	}
}

// in lists the IDs that a query selects.
func (e *env) in(q dlq.Query) (ids []string) {
	e.Helper()
	for _, r := range e.list(q) {
		ids = append(ids, r.ID)
	}
	return ids
}

// wantIn checks which letters a query selects.
func (e *env) wantIn(q dlq.Query, ids ...string) {
	e.Helper()
	if got := e.in(q); !slices.Equal(got, ids) {
		e.Fatalf("the query %+v selects %q, want %q", q, got, ids)
	}
}

// totals returns the totals of all streams.
func (e *env) totals() []dlq.Totals {
	e.Helper()
	t, err := e.store.Totals(context.Background(), "", 100)
	if err != nil {
		e.Fatalf("Totals: %v", err)
	}
	return slices.DeleteFunc(t, func(t dlq.Totals) bool { return t.Waiting+t.Review+t.Resolved+t.Discarded+t.Rejected == 0 })
}

// wantTotals checks the numbers of letters in the stream by state.
func (e *env) wantTotals(waiting, review, resolved, discarded, rejected int) dlq.Totals {
	e.Helper()
	t := dlq.Totals{Stream: stream}
	if all := e.totals(); len(all) == 1 {
		t = all[0]
	}
	want := dlq.Totals{Stream: stream, Waiting: waiting, Review: review, Resolved: resolved, Discarded: discarded, Rejected: rejected, Oldest: t.Oldest}
	if t != want {
		e.Fatalf("the totals are %+v, want %+v", t, want)
	}
	return t
}

// groups returns the groups of the stream.
func (e *env) groups() []dlq.Group {
	e.Helper()
	g, err := e.store.Groups(context.Background(), stream, "", 100)
	if err != nil {
		e.Fatalf("Groups: %v", err)
	}
	return g
}

// audit returns the entries that a query selects.
func (e *env) audit(q dlq.AuditQuery) (all []dlq.Entry) {
	e.Helper()
	q.Stream = stream
	if q.N == 0 {
		q.N = 100
	}
	for {
		entries, next, err := e.store.Audit(context.Background(), q)
		if err != nil {
			e.Fatalf("Audit: %v", err)
		}
		for _, x := range entries {
			if x.Seq <= q.After {
				e.Fatalf("Audit behind %d returned the number %d", q.After, x.Seq)
			}
			q.After = x.Seq
		}
		all = append(all, entries...)
		if next == 0 {
			return all
		}
		q.After = next
	}
}

// job makes a job in its first version.
func job(id string) dlq.Job {
	return dlq.Job{Stream: stream, ID: id, Nonce: nonce(), Data: []byte("plan of " + id)}
}

// save saves a job, which must succeed.
func (e *env) save(j dlq.Job) dlq.Job {
	e.Helper()
	got, err := e.store.SaveJob(context.Background(), e.p, j)
	if err != nil {
		e.Fatalf("SaveJob of %q in version %d: %v", j.ID, j.Version, err)
	}
	return got
}

// progress returns a job as it is stored.
func (e *env) progress(id string) dlq.Job {
	e.Helper()
	js, err := e.store.Jobs(context.Background(), stream, "", 100)
	if err != nil {
		e.Fatalf("Jobs: %v", err)
	}
	i := slices.IndexFunc(js, func(j dlq.Job) bool { return j.ID == id })
	if i < 0 {
		e.Fatalf("there is no job %q", id)
	}
	return js[i]
}

// sweep removes all that has expired, and says how much; false: the store is no Sweeper.
func (e *env) sweep() (removed int, ok bool) {
	e.Helper()
	s := e.store
	if twice, is := s.(*twiceStore); is {
		s = twice.Store
	}
	sweeper, is := s.(dlq.Sweeper)
	if !is {
		return 0, false
	}
	for range 3 { // it goes on where the last one stopped
		n, err := sweeper.Sweep(context.Background(), 100_000)
		if err != nil {
			e.Fatalf("Sweep: %v", err)
		}
		removed += n
	}
	return removed, true
}
