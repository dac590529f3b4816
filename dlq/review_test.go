package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/dlqtest"
)

func TestReviewNeedsAuthorize(t *testing.T) {
	q := newQueue(t, dlq.NewMemory(), nil)
	if _, err := dlq.NewReview(q, nil, nil); !errors.Is(err, dlq.ErrInvalid) {
		t.Errorf("a review that asks nobody: %v", err)
	}
	if _, err := dlq.NewReview(nil, func(context.Context, dlq.Action) (string, error) { return "x", nil }, nil); !errors.Is(err, dlq.ErrInvalid) {
		t.Errorf("a review of no queue: %v", err)
	}
}

// everything calls each method of a review about a letter, by the verb that it asks for.
func everything(r *dlq.Review, l dlq.Letter) map[dlq.Verb]func() error {
	ref := l.Ref()
	return map[dlq.Verb]func() error{
		dlq.VerbList: func() error {
			_, err := r.List(ctx, dlq.Query{Stream: stream, N: 10})
			_, groups := r.Groups(ctx, stream, "", 10)
			_, totals := r.Totals(ctx, "", 10)
			_, jobs := r.Jobs(ctx, stream, "", 10)
			return errors.Join(err, groups, totals, jobs)
		},
		dlq.VerbAudit:   func() error { _, _, err := r.Audit(ctx, dlq.AuditQuery{Stream: stream, N: 10}); return err },
		dlq.VerbReveal:  func() error { _, err := r.Reveal(ctx, ref, "why"); return err },
		dlq.VerbEdit:    func() error { return r.Edit(ctx, ref, dlq.Content{Payload: []byte("x")}, "why") },
		dlq.VerbApprove: func() error { return r.Approve(ctx, ref, "why") },
		dlq.VerbReject:  func() error { return r.Reject(ctx, ref, "why") },
		dlq.VerbDiscard: func() error { return r.Discard(ctx, ref, "why") },
		dlq.VerbSkip:    func() error { return r.Skip(ctx, ref, "why") },
		dlq.VerbForget:  func() error { return r.Forget(ctx, ref, "why") },
		dlq.VerbRedrive: func() error {
			_, _, err := r.Redrive(ctx, dlq.Redrive{Stream: stream, ID: "j", Reason: "why"})
			return err
		},
		dlq.VerbPause:  func() error { _, err := r.Pause(ctx, stream, "j", "why"); return err },
		dlq.VerbResume: func() error { _, err := r.Resume(ctx, stream, "j", "why"); return err },
		dlq.VerbCancel: func() error { _, err := r.Cancel(ctx, stream, "j", "why"); return err },
	}
}

// TestEachVerbIsAskedForApart allows one verb at a time, and shows that nothing else
// can be done with it, and that refusals read and change nothing.
func TestEachVerbIsAskedForApart(t *testing.T) {
	verbs := everything(nil, dlq.Letter{})
	for allowed := range verbs {
		q := newQueue(t, dlq.NewMemory(), nil)
		put(t, q, "k", "a", "b")
		l := get(t, q, "a")
		if _, _, err := newReview(t, q).Redrive(ctx, dlq.Redrive{Stream: stream, ID: "j", Reason: "first"}); err != nil {
			t.Fatal(err)
		}
		before := fmt.Sprint(l)
		r := authorized(t, q, func(_ context.Context, a dlq.Action) (string, error) {
			if a.Verb == allowed {
				return "ana", nil
			}
			return "", errors.New("not you")
		})
		for verb, call := range everything(r, l) {
			if verb == allowed {
				continue
			}
			if err := call(); !errors.Is(err, dlq.ErrUnauthorized) {
				t.Errorf("%s, with %s allowed: %v", verb, allowed, err)
			}
		}
		entries, _, err := newReview(t, q).Audit(ctx, dlq.AuditQuery{Stream: stream, N: 10})
		if after := fmt.Sprint(get(t, q, "a")); after != before || err != nil || len(entries) != 1 {
			t.Errorf("with %s allowed, refusals made of\n%s\n%s, with the audit %+v", allowed, before, after, entries)
		}
		if err := everything(r, l)[allowed](); err != nil { // of a redrive it is the same job
			t.Errorf("%s, which is allowed: %v", allowed, err)
		}
	}
}

func TestRefusalsOfAnAuthorizeFunction(t *testing.T) {
	log, text := logged()
	var hooked []string
	q := newQueue(t, dlq.NewMemory(), &dlq.Options{Logger: log, Hooks: &dlq.Hooks{Acted: func(_ context.Context, a dlq.Action, actor string, err error) {
		hooked = append(hooked, fmt.Sprint(a.Verb, " ", actor, " ", errors.Is(err, dlq.ErrUnauthorized)))
	}}})
	put(t, q, "k", "a")
	l := get(t, q, "a")
	for name, f := range map[string]dlq.Authorize{
		"no actor":   func(context.Context, dlq.Action) (string, error) { return "", nil },
		"panic":      func(context.Context, dlq.Action) (string, error) { panic("confidential") },
		"long actor": func(context.Context, dlq.Action) (string, error) { return strings.Repeat("a", 257), nil },
		"an error":   func(context.Context, dlq.Action) (string, error) { return "ana", errDown },
	} {
		if err := authorized(t, q, f).Discard(ctx, l.Ref(), "why"); !errors.Is(err, dlq.ErrUnauthorized) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantState(t, q, "a", dlq.StateWaiting)
	if err := newReview(t, q).Discard(ctx, l.Ref(), "why"); err != nil {
		t.Fatal(err)
	}
	if len(hooked) != 5 || hooked[4] != "discard ana false" || hooked[0] != "discard  true" {
		t.Errorf("the hook was told of %q", hooked)
	}
	if s := q.Stats(); s.Unauthorized != 4 || s.Actions != 1 {
		t.Errorf("the stats are %+v", s)
	}
	if strings.Contains(text(), "confidential") || !strings.Contains(text(), "actor=ana") || strings.Contains(text(), "id=a ") {
		t.Errorf("the log says %s", text())
	}
}

func TestEditKeepsTheOriginalAndTellsConcurrentEditsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, dlq.NewMemory(), exact())
		r := newReview(t, q)
		put(t, q, "k", "a")
		ref := func() dlq.Ref { l := get(t, q, "a"); return l.Ref() }()
		seen, err := r.Reveal(ctx, ref, "to look")
		if err != nil || string(seen.Payload) != "payload of a" {
			t.Fatalf("Reveal: %+v, %v", seen, err)
		}
		content := dlq.Content{Payload: []byte("better"), Headers: map[string]string{"h": "new"}}
		if err := r.Edit(ctx, seen.Ref(), content, "typo"); err != nil {
			t.Fatal(err)
		}
		if err := r.Edit(ctx, seen.Ref(), content, "typo"); !errors.Is(err, dlq.ErrChanged) {
			t.Errorf("an edit of what was edited meanwhile: %v", err)
		}
		l := get(t, q, "a")
		if string(l.Payload) != "better" || l.Headers["h"] != "new" || l.Original == nil || string(l.Original.Payload) != "payload of a" || l.Original.Headers["h"] != "of a" {
			t.Errorf("the edited letter is %+v", l)
		}
		if err := r.Edit(ctx, l.Ref(), dlq.Content{Payload: make([]byte, 2<<20)}, "x"); !errors.Is(err, dlq.ErrInvalid) {
			t.Errorf("too large an edit: %v", err)
		}
		if err := r.Edit(ctx, dlq.Ref{Stream: stream, ID: "a", Seq: l.Seq}, content, "x"); !errors.Is(err, dlq.ErrInvalid) {
			t.Errorf("an edit of something that nobody saw: %v", err)
		}
		var got string
		stop := run(t, q, nil, func(_ context.Context, l dlq.Letter) error { got = string(l.Payload); return nil })
		time.Sleep(6 * time.Minute)
		stop()
		if got != "better" {
			t.Errorf("the handler got %q", got)
		}
		entries, _, err := r.Audit(ctx, dlq.AuditQuery{Stream: stream, ID: "a", N: 10})
		if err != nil || len(entries) != 2 || entries[0].Verb != "reveal" || entries[1].Verb != "edit" || entries[1].Before != seen.Digest || entries[1].After != l.Digest {
			t.Errorf("the audit has %+v, %v", entries, err)
		}
		for name, err := range map[string]error{
			"edit": r.Edit(ctx, ref, content, "x"), "approve": r.Approve(ctx, ref, "x"), "skip": r.Skip(ctx, ref, "x"), "reject": r.Reject(ctx, ref, "x"),
		} {
			if !errors.Is(err, dlq.ErrState) {
				t.Errorf("%s of a resolved letter: %v", name, err)
			}
		}
	})
}

func TestReviewRefusesArguments(t *testing.T) {
	q := newQueue(t, dlq.NewMemory(), nil)
	r := newReview(t, q)
	put(t, q, "k", "a")
	l := get(t, q, "a")
	noReason, noSeq := r.Discard(ctx, l.Ref(), ""), r.Discard(ctx, dlq.Ref{Stream: stream, ID: "a"}, "x")
	_, page := r.List(ctx, dlq.Query{Stream: stream, N: 1001})
	_, state := r.List(ctx, dlq.Query{Stream: stream, N: 1, State: 9})
	_, streamless := r.List(ctx, dlq.Query{N: 1})
	_, print := r.Groups(ctx, stream, "XYZ", 1)
	for name, err := range map[string]error{
		"no reason": noReason, "no number": noSeq, "page": page, "state": state, "no stream": streamless, "fingerprint": print,
		"long reason": r.Discard(ctx, l.Ref(), strings.Repeat("x", dlq.MaxReason+1)), "NUL": r.Discard(ctx, l.Ref(), "\x00"),
	} {
		if !errors.Is(err, dlq.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.Discard(ctx, dlq.Ref{Stream: stream, ID: "a", Seq: l.Seq + 1}, "x"); !errors.Is(err, dlq.ErrNotFound) {
		t.Errorf("an unknown letter: %v", err)
	}
	if _, err := r.Reveal(ctx, dlq.Ref{Stream: stream, ID: "b", Seq: l.Seq}, "x"); !errors.Is(err, dlq.ErrNotFound) {
		t.Errorf("a letter of another ID: %v", err)
	}
	if err := r.Forget(ctx, l.Ref(), "asked for"); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Get(ctx, stream, "a"); !errors.Is(err, dlq.ErrNotFound) {
		t.Errorf("a forgotten letter: %v", err)
	}
}

// TestListsRefuseArgumentsThatAStoreMayNotBear has texts and times that a database
// cannot hold.
func TestListsRefuseArgumentsThatAStoreMayNotBear(t *testing.T) {
	q := newQueue(t, dlq.NewMemory(), nil)
	r := newReview(t, q)
	far, before := time.Unix(1<<40, 0), time.Unix(-1<<40, 0)
	_, from := r.List(ctx, dlq.Query{Stream: stream, N: 1, From: far})
	_, until := r.List(ctx, dlq.Query{Stream: stream, N: 1, Until: before})
	_, _, plan := r.Redrive(ctx, dlq.Redrive{Stream: stream, ID: "j", Reason: "x", Until: far})
	_, job := r.List(ctx, dlq.Query{Stream: stream, N: 1, Job: "\x00"})
	_, jobs := r.Jobs(ctx, stream, "\x00", 1)
	_, totals := r.Totals(ctx, "\xff", 1)
	_, counts := q.Totals(ctx, "\xff", 1)
	_, _, audit := r.Audit(ctx, dlq.AuditQuery{Stream: stream, N: 1, Job: "\x00"})
	for name, err := range map[string]error{
		"from": from, "until": until, "redrive": plan, "job": job, "jobs": jobs, "totals": totals, "the queue's totals": counts, "audit": audit,
	} {
		if !errors.Is(err, dlq.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNobodyDecidesWhatHeHasNotSeen has one operator edit a letter that another looks at.
func TestNobodyDecidesWhatHeHasNotSeen(t *testing.T) {
	for verb, decide := range map[dlq.Verb]func(*dlq.Review, dlq.Ref) error{
		dlq.VerbApprove: func(r *dlq.Review, ref dlq.Ref) error { return r.Approve(ctx, ref, "x") },
		dlq.VerbReject:  func(r *dlq.Review, ref dlq.Ref) error { return r.Reject(ctx, ref, "x") },
		dlq.VerbDiscard: func(r *dlq.Review, ref dlq.Ref) error { return r.Discard(ctx, ref, "x") },
		dlq.VerbSkip:    func(r *dlq.Review, ref dlq.Ref) error { return r.Skip(ctx, ref, "x") },
	} {
		q := newQueue(t, dlq.NewMemory(), nil)
		r := newReview(t, q)
		put(t, q, "k", "a")
		seen := get(t, q, "a")
		if err := r.Edit(ctx, seen.Ref(), dlq.Content{Payload: []byte("other")}, "typo"); err != nil {
			t.Fatal(err)
		}
		err := decide(r, seen.Ref())
		if l := get(t, q, "a"); !errors.Is(err, dlq.ErrChanged) || l.State != dlq.StateWaiting || l.Aside {
			t.Errorf("%s of what was edited meanwhile: %v, and the letter is %+v", verb, err, l)
		}
		if _, err := r.Reveal(ctx, seen.Ref(), "to look again"); err != nil {
			t.Errorf("Reveal of what was edited: %v", err)
		}
		any := seen.Ref()
		any.Digest = [32]byte{}
		if err := decide(r, any); err != nil {
			t.Errorf("%s whatever the content is: %v", verb, err)
		}
		if err := r.Forget(ctx, seen.Ref(), "asked for"); err != nil {
			t.Errorf("Forget of what was edited: %v", err)
		}
	}
}

func TestGetReturnsTheNewest(t *testing.T) {
	q := newQueue(t, dlq.NewMemory(), nil)
	r := newReview(t, q)
	var last uint64
	for range 3 {
		put(t, q, "k", "a")
		l := get(t, q, "a")
		if l.Seq <= last || l.State != dlq.StateWaiting {
			t.Fatalf("the newest letter is %+v", l)
		}
		last = l.Seq
		if err := r.Discard(ctx, l.Ref(), "x"); err != nil {
			t.Fatal(err)
		}
	}
	page, err := r.List(ctx, dlq.Query{Stream: stream, ID: "a", N: 2})
	if err != nil || len(page.Letters) != 2 || page.Next == 0 || page.Letters[0].Payload != nil || page.Letters[0].Headers != nil {
		t.Errorf("the list is %+v, %v", page, err)
	}
	rest, err := r.List(ctx, dlq.Query{Stream: stream, ID: "a", After: page.Next, N: 2})
	if err != nil || len(rest.Letters) != 1 || rest.Next != 0 {
		t.Errorf("the rest is %+v, %v", rest, err)
	}
}

func TestGroups(t *testing.T) {
	q := newQueue(t, dlq.NewMemory(), nil)
	r := newReview(t, q)
	for i := range 7 {
		err := errDown
		if i >= 5 {
			err = errors.New("else")
		}
		if _, e := q.Put(ctx, dlq.Dead{Message: message(fmt.Sprint(i), ""), Cause: err}); e != nil {
			t.Fatal(e)
		}
	}
	groups, err := r.Groups(ctx, stream, "", 10)
	if err != nil || len(groups) != 2 || groups[0].Waiting+groups[1].Waiting != 7 {
		t.Fatalf("the groups are %+v, %v", groups, err)
	}
	for _, g := range groups {
		page, err := r.List(ctx, dlq.Query{Stream: stream, Fingerprint: g.Fingerprint, N: 10})
		if err != nil || len(page.Letters) != g.Waiting || g.First.IsZero() || g.Last.Before(g.First) {
			t.Errorf("of the group %+v there are %d letters, %v", g, len(page.Letters), err)
		}
	}
}

// TestRevealLeavesATraceOrShowsNothing has a store that does not append, and one whose
// answer is lost.
func TestRevealLeavesATraceOrShowsNothing(t *testing.T) {
	m := dlq.NewMemory()
	setup := newQueue(t, m, nil)
	put(t, setup, "k", "a")
	l := get(t, setup, "a")
	fault := func(s dlqtest.Step) error {
		if s.Changes != nil {
			return dlqtest.ErrFault
		}
		return nil
	}
	for name, s := range map[string]*dlqtest.Faulty{"not appended": {Store: m, Before: fault}, "answer lost": {Store: m, After: fault}} {
		q := newQueue(t, s, &dlq.Options{StoreTimeout: 50 * time.Millisecond})
		if got, err := newReview(t, q).Reveal(ctx, l.Ref(), "to look"); !errors.Is(err, dlq.ErrUnavailable) || got.Payload != nil || got.ID != "" {
			t.Errorf("%s: Reveal returned %+v, %v", name, got, err)
		}
	}
	entries, _, err := newReview(t, setup).Audit(ctx, dlq.AuditQuery{Stream: stream, N: 10})
	if err != nil || len(entries) != 1 { // of the second, once
		t.Errorf("the audit has %+v, %v", entries, err)
	}
}

// TestReviewLogsWhereItIsTold has a logger of its own beside the queue's.
func TestReviewLogsWhereItIsTold(t *testing.T) {
	queues, queueText := logged()
	own, ownText := logged()
	q := newQueue(t, dlq.NewMemory(), &dlq.Options{Logger: queues})
	put(t, q, "k", "a")
	l := get(t, q, "a")
	r, err := dlq.NewReview(q, func(context.Context, dlq.Action) (string, error) { return "ana", nil }, &dlq.ReviewOptions{Logger: own})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Discard(ctx, l.Ref(), "not wanted"); err != nil {
		t.Fatal(err)
	}
	if queueText() != "" || !strings.Contains(ownText(), `reason="not wanted"`) || !strings.Contains(ownText(), "actor=ana") {
		t.Errorf("the queue's log says %q, the review's %q", queueText(), ownText())
	}
}
