package dlqtest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/dlq"
)

// What persons do.
var changeCases = []testCase{
	{name: "EditKeepsTheOriginal", run: changeEdit},
	{name: "ApproveIsDueAtOnce", run: changeApprove},
	{name: "ApproveOfAWaitingLetter", run: changeApproveWaiting},
	{name: "ApprovedLetterIsStillTheFirst", run: changeApproveOrder},
	{name: "RejectAndDiscardEndALetter", run: changeEnd},
	{name: "SkipPutsALetterAside", run: changeSkip},
	{name: "SkippedLetterIsWorkedAlone", run: changeSkipApprove},
	{name: "SkipOfALetterWithoutKey", run: changeSkipAlone},
	{name: "ForgetRemovesALetter", run: changeForget},
	{name: "ForgottenLettersAnswerForNothing", run: changeForgetOlder},
	{name: "NoteChangesNothing", run: changeNote},
	{name: "EndedLettersAreNotChanged", run: changeEnded},
	{name: "UnknownLettersAreNotFound", run: changeUnknown},
	{name: "BeforeIsCompared", run: changeBefore},
	{name: "SameNonceIsTheSameChange", run: changeNonce},
	{name: "ChangesOfABatchTakeEffectInOrder", run: changeBatch},
	{name: "ManyChangesInABatch", run: changeMany},
}

func changeEdit(e *env) {
	e.letters("k", "a")
	e.reviewed("a")
	before := e.record("a")
	c := change(dlq.ChangeEdit, before)
	e.changed(c)
	r := e.wantState("a", dlq.StateReview, 1)
	if !bytes.Equal(r.Body, c.Body) || r.Digest != c.After || string(r.Original) != "body of a" || !r.Put.Equal(before.Put) {
		e.Fatalf("an edited letter is %+v", r)
	}
	second := change(dlq.ChangeEdit, r)
	second.Body = []byte("edited again")
	second.After = sha256.Sum256(second.Body)
	e.changed(second)
	if r := e.record("a"); string(r.Body) != "edited again" || string(r.Original) != "body of a" || r.Digest != second.After {
		e.Fatalf("a letter that was edited twice is %+v", r)
	}
	e.does(dlq.ChangeApprove, "a")
	if c := e.claim("a"); string(c.Record.Body) != "edited again" {
		e.Fatalf("the handler gets the body %q", c.Record.Body)
	}
}

func changeApprove(e *env) {
	e.letters("k", "a")
	e.reviewed("a")
	e.nothing()
	e.does(dlq.ChangeApprove, "a")
	r := e.wantState("a", dlq.StateWaiting, 0)
	if r.Log.Total() != 2 || r.Next.Before(r.Put) || r.Job != "" {
		e.Fatalf("an approved letter is %+v", r)
	}
	e.wantTotals(1, 0, 0, 0, 0)
	if c := e.claim("a"); c.Record.Tries != 1 {
		e.Fatalf("an approved letter is tried as the %d.", c.Record.Tries)
	}
}

func changeApproveWaiting(e *env) {
	l := letter("a", "k")
	l.Delay = longLease
	e.answered(dlq.Added, l)
	e.nothing()
	e.does(dlq.ChangeApprove, "a")
	c := e.claim("a")
	e.applied(retry(c, longLease))
	e.does(dlq.ChangeApprove, "a")
	e.wantState("a", dlq.StateWaiting, 0)
	e.claim("a")
}

func changeApproveOrder(e *env) {
	e.letters("k", "a", "b")
	e.reviewed("a")
	e.does(dlq.ChangeApprove, "a")
	e.applied(resolve(e.claim("a")))
	e.claim("b")
}

func changeEnd(e *env) {
	e.letters("k", "a", "b", "c")
	e.does(dlq.ChangeReject, "a")
	e.reviewed("b")
	e.does(dlq.ChangeDiscard, "b")
	for id, s := range map[string]dlq.State{"a": dlq.StateRejected, "b": dlq.StateDiscarded} {
		r := e.record(id)
		if r.State != s || r.Settled.IsZero() || r.Expires.Sub(r.Settled) != longRetention || !r.Next.IsZero() || string(r.Body) != "body of "+id {
			e.Fatalf("the letter %+v should be %v", r, s)
		}
	}
	e.wantTotals(1, 0, 0, 1, 1)
	e.claim("c")
}

func changeSkip(e *env) {
	e.letters("k", "a", "b")
	e.reviewed("a")
	e.does(dlq.ChangeSkip, "a")
	r := e.wantState("a", dlq.StateReview, 1)
	if !r.Aside || r.Key != "k" || !r.Next.IsZero() {
		e.Fatalf("a skipped letter is %+v", r)
	}
	e.refused(dlq.ErrState, change(dlq.ChangeSkip, r))
	e.applied(resolve(e.claim("b")))
	e.wantTotals(0, 1, 1, 0, 0)
	e.letters("k", "c")
	e.does(dlq.ChangeSkip, "c") // one that waits
	e.wantState("c", dlq.StateReview, 0)
	e.nothing()
}

func changeSkipApprove(e *env) {
	e.letters("k", "a", "b")
	e.does(dlq.ChangeSkip, "a")
	e.does(dlq.ChangeApprove, "a")
	cs := e.claimable("a", "b") // at the same time
	for _, c := range cs {
		if c.Record.ID == "a" && (c.Lane != "ia" || !c.Record.Aside) {
			e.Fatalf("a skipped letter is claimed as %+v", c)
		}
		e.applied(resolve(c))
	}
	e.wantTotals(0, 0, 2, 0, 0)
}

func changeSkipAlone(e *env) {
	e.letters("", "a")
	e.does(dlq.ChangeSkip, "a")
	e.nothing()
	e.wantTotals(0, 1, 0, 0, 0)
	e.does(dlq.ChangeApprove, "a")
	e.claim("a")
}

func changeForget(e *env) {
	e.letters("k", "a", "b")
	e.letters("other", "c")
	e.does(dlq.ChangeForget, "a")
	for _, c := range e.claimable("b", "c") {
		e.applied(resolve(c))
	}
	e.does(dlq.ChangeForget, "b")
	e.wantTotals(0, 0, 1, 0, 0)
	e.wantIn(dlq.Query{}, "c")
	if len(e.groups()) != 0 {
		e.Fatalf("the groups of no letters are %+v", e.groups())
	}
	e.letters("k", "a")
	e.wantState("a", dlq.StateWaiting, 0)
}

func changeForgetOlder(e *env) {
	first := letter("a", "k")
	e.answered(dlq.Added, first)
	e.applied(resolve(e.claim("a")))
	second := letter("a", "k")
	e.answered(dlq.Added, second)
	e.does(dlq.ChangeForget, "a")
	e.answered(dlq.Added, first) // the one that is left was put with this nonce
	e.wantTotals(0, 0, 1, 0, 0)
	e.answered(dlq.Added, second)
	e.wantTotals(1, 0, 1, 0, 0)
}

func changeNote(e *env) {
	e.letters("k", "a")
	e.applied(resolve(e.claim("a")))
	before := e.record("a")
	e.changed(change(dlq.ChangeNote, before))
	if after := e.record("a"); describeRecord(after) != describeRecord(before) {
		e.Fatalf("a note made of %s\n%s", describeRecord(before), describeRecord(after))
	}
	e.letters("k", "b")
	c := e.claim("b")
	e.changed(change(dlq.ChangeNote, c.Record))
	e.applied(resolve(c)) // it is still the worker's
	e.changed(change(dlq.ChangeNote, dlq.Record{Stream: stream}), change(dlq.ChangeNote, dlq.Record{Stream: "unknown"}))
	if n := len(e.audit(dlq.AuditQuery{})); n != 3 {
		e.Fatalf("three notes are %d entries", n)
	}
}

var endings = []dlq.ChangeKind{dlq.ChangeEdit, dlq.ChangeApprove, dlq.ChangeReject, dlq.ChangeDiscard, dlq.ChangeSkip}

func changeEnded(e *env) {
	e.letters("k", "a", "b", "c")
	e.applied(resolve(e.claim("a")))
	e.does(dlq.ChangeReject, "b")
	e.does(dlq.ChangeDiscard, "c")
	for _, id := range []string{"a", "b", "c"} {
		before := e.record(id)
		for _, k := range endings {
			e.refused(dlq.ErrState, change(k, before))
		}
		if after := e.record(id); describeRecord(after) != describeRecord(before) {
			e.Fatalf("refused changes made of %s\n%s", describeRecord(before), describeRecord(after))
		}
	}
	e.nothing()
}

func changeUnknown(e *env) {
	e.letters("k", "a", "b")
	unknown := e.record("b")
	unknown.Seq += 1000
	other := e.record("b")
	other.ID = "a"
	elsewhere := e.record("b")
	elsewhere.Stream = "second"
	for _, r := range []dlq.Record{unknown, other, elsewhere} {
		for _, k := range append(endings, dlq.ChangeForget, dlq.ChangeNote) {
			e.refused(dlq.ErrNotFound, change(k, r))
		}
	}
	e.wantTotals(2, 0, 0, 0, 0)
}

func changeBefore(e *env) {
	e.letters("k", "a")
	seen := e.record("a")
	e.does(dlq.ChangeEdit, "a")
	for _, k := range append(endings, dlq.ChangeForget, dlq.ChangeNote) {
		c := change(k, seen)
		c.Before = seen.Digest
		e.refused(dlq.ErrChanged, c)
	}
	c := change(dlq.ChangeEdit, seen)
	c.Before, c.Body = e.record("a").Digest, []byte("right")
	e.changed(c)
	if r := e.wantState("a", dlq.StateWaiting, 0); string(r.Body) != "right" {
		e.Fatalf("the letter is %+v", r)
	}
}

func changeNonce(e *env) {
	e.letters("k", "a", "b")
	skip := change(dlq.ChangeSkip, e.record("a"))
	e.changed(skip)
	e.changed(skip) // otherwise its state would not allow it
	approve := change(dlq.ChangeApprove, e.record("a"))
	e.changed(approve)
	e.applied(resolve(e.claimable("a", "b")[0]))
	e.changed(approve)
	forget := change(dlq.ChangeForget, e.record("b"))
	e.changed(forget)
	e.changed(forget)
	if n := len(e.audit(dlq.AuditQuery{})); n != 3 {
		e.Fatalf("three changes, each sent twice, are %d entries", n)
	}
}

func changeBatch(e *env) {
	e.letters("k", "a", "b")
	a, b := e.record("a"), e.record("b")
	errs := e.send(change(dlq.ChangeSkip, a), change(dlq.ChangeEdit, a), change(dlq.ChangeDiscard, a), change(dlq.ChangeApprove, a), change(dlq.ChangeReject, b))
	if errs[0] != nil || errs[1] != nil || errs[2] != nil || errs[3] == nil || errs[4] != nil {
		e.Fatalf("a batch was answered %v", errs)
	}
	if r := e.wantState("a", dlq.StateDiscarded, 0); string(r.Original) != "body of a" || !r.Aside {
		e.Fatalf("the letter is %+v", r)
	}
	e.wantTotals(0, 0, 0, 1, 1)
}

func changeMany(e *env) {
	n, lanes := e.many()/2, e.many()/12
	var letters []dlq.Put
	for i := range n {
		letters = append(letters, letter(fmt.Sprintf("l%04d", i), fmt.Sprint("k", i%lanes)))
		letters[i].Delay = time.Hour
	}
	e.put(letters...)
	var changes []dlq.Change
	for _, r := range e.list(dlq.Query{N: 1000}) {
		changes = append(changes, change(dlq.ChangeApprove, r))
	}
	e.changed(changes...)
	a := newAsk()
	a.N = 1000
	if c := e.ask(a).Claims; len(c) != lanes {
		e.Fatalf("%d approved letters in %d lanes are claimed as %d", n, lanes, len(c))
	}
	if got := len(e.audit(dlq.AuditQuery{N: 250})); got != n {
		e.Fatalf("%d changes are %d entries", n, got)
	}
}

// What the audit keeps.
var auditCases = []testCase{
	{name: "EveryChangeIsAnEntry", run: auditEntries},
	{name: "RefusedChangesAreNoEntries", run: auditRefused},
	{name: "AuditSelectsAndPages", run: auditPages},
	{name: "EntriesOutliveTheirLetter", run: auditForgotten},
}

func auditEntries(e *env) {
	e.letters("k", "a")
	e.save(job("j"))
	r := e.record("a")
	edit := change(dlq.ChangeEdit, r)
	skip, approve := change(dlq.ChangeSkip, r), change(dlq.ChangeApprove, r)
	approve.Job, approve.Actor, approve.Reason = "j", "ben", "weil – <b>\u202e"
	note, discard := change(dlq.ChangeNote, r), change(dlq.ChangeDiscard, r)
	note.Job = "other"
	e.changed(edit, skip, approve)
	e.tick()
	e.changed(note, discard)
	alone := change(dlq.ChangeNote, dlq.Record{Stream: stream})
	alone.Verb, alone.Job = "pause", "j"
	e.changed(alone)
	got := e.audit(dlq.AuditQuery{})
	want := []dlq.Entry{
		{Verb: "edit", Before: r.Digest, After: edit.After},
		{Verb: "skip", Before: edit.After, After: edit.After},
		{Verb: "approve", Job: "j", Actor: "ben", Reason: "weil – <b>\u202e", Before: edit.After, After: edit.After},
		{Verb: "reveal", Job: "other", Before: edit.After, After: edit.After},
		{Verb: "discard", Before: edit.After, After: edit.After},
		{Verb: "pause", Job: "j"},
	}
	if len(got) != len(want) {
		e.Fatalf("%d changes are %d entries: %+v", len(want), len(got), got)
	}
	for i, w := range want {
		w.Stream, w.Seq, w.At = stream, got[i].Seq, got[i].At
		if w.Actor == "" {
			w.Actor, w.Reason = "ana", "because"
		}
		if w.Verb != "pause" {
			w.ID, w.Letter = "a", r.Seq
		}
		if got[i] != w {
			e.Fatalf("entry %d is %+v, want %+v", i, got[i], w)
		}
	}
	if got[0].At.IsZero() || !got[3].At.After(got[0].At) {
		e.Fatalf("the entries are of %v and %v", got[0].At, got[3].At)
	}
}

func auditRefused(e *env) {
	e.letters("k", "a")
	r := e.record("a")
	e.does(dlq.ChangeDiscard, "a")
	e.refused(dlq.ErrState, change(dlq.ChangeApprove, r))
	r.Seq += 1000
	e.refused(dlq.ErrNotFound, change(dlq.ChangeForget, r))
	if got := e.audit(dlq.AuditQuery{}); len(got) != 1 || got[0].Verb != "discard" {
		e.Fatalf("one change that was applied and two that were refused are %+v", got)
	}
}

func auditPages(e *env) {
	e.letters("k", "a", "b")
	a, b := e.record("a"), e.record("b")
	for i := range 7 {
		n := change(dlq.ChangeNote, []dlq.Record{a, b}[i%2])
		n.Verb, n.Job = fmt.Sprint("v", i), fmt.Sprint("j", i%3)
		e.changed(n)
	}
	verbs := func(q dlq.AuditQuery) (s string) {
		for _, x := range e.audit(q) {
			s += x.Verb
		}
		return s
	}
	for q, want := range map[dlq.AuditQuery]string{
		{N: 2}: "v0v1v2v3v4v5v6", {N: 7}: "v0v1v2v3v4v5v6", {ID: "b"}: "v1v3v5", {ID: "a", N: 1}: "v0v2v4v6",
		{Job: "j0"}: "v0v3v6", {ID: "a", Job: "j0", N: 1}: "v0v6", {ID: "c"}: "",
	} {
		if got := verbs(q); got != want {
			e.Fatalf("the query %+v selects %s, want %s", q, got, want)
		}
	}
}

func auditForgotten(e *env) {
	e.letters("k", "a")
	r := e.record("a")
	e.does(dlq.ChangeForget, "a")
	got := e.audit(dlq.AuditQuery{ID: "a"})
	if len(got) != 1 || got[0].Verb != "forget" || got[0].Before != r.Digest || got[0].After != [32]byte{} || got[0].Letter != r.Seq {
		e.Fatalf("a forgotten letter left %+v", got)
	}
}
