package dlqtest

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-go/pawl/dlq"
)

// What becomes of letters that are put.
var putCases = []testCase{
	{name: "PutStoresALetter", run: putStores},
	{name: "PutOfTheSameNonceAnswersTheSame", run: putSameNonce},
	{name: "PutOfTheSameNonceAfterTheEnd", run: putSameNonceEnded},
	{name: "UnresolvedLetterAnswersDuplicate", run: putDuplicate},
	{name: "DuplicateAddsItsFailure", run: putDuplicateFailure},
	{name: "DuplicateInReview", run: putDuplicateReview},
	{name: "APutWithAFailureTakesTheLetterFromItsWorker", run: putDuplicateBegun},
	{name: "EndedLetterBlocksNothing", run: putAfterEnd},
	{name: "IfBlockedParksBehindAKey", run: putIfBlocked},
	{name: "IfBlockedWithoutAKey", run: putIfBlockedAlone},
	{name: "EndedLettersDoNotBlock", run: putIfBlockedEnded},
	{name: "StreamsAreApart", run: putStreams},
	{name: "CapacityIsOfUnresolvedLetters", run: putFull},
	{name: "ItemsOfABatchTakeEffectInOrder", run: putBatch, once: true},
	{name: "ManyLettersInABatch", run: putMany},
}

func putStores(e *env) {
	e.answered(dlq.Added, letter("a", "k"))
	r := e.record("a")
	if r.State != dlq.StateWaiting || r.Tries != 0 || r.Aside || r.Original != nil || !r.Settled.IsZero() || !r.Expires.IsZero() || r.Job != "" {
		e.Fatalf("a new letter is %+v", r)
	}
	e.wantTotals(1, 0, 0, 0, 0)
}

func putSameNonce(e *env) {
	l := letter("a", "k")
	e.answered(dlq.Added, l)
	e.answered(dlq.Added, l)
	again := letter("a", "k")
	e.answered(dlq.Duplicate, again)
	e.answered(dlq.Duplicate, again)
	if r := e.record("a"); r.Log.Total() != 2 {
		e.Fatalf("two failures, the second sent twice, are %d in the log", r.Log.Total())
	}
	e.wantTotals(1, 0, 0, 0, 0)
}

func putSameNonceEnded(e *env) {
	l := letter("a", "k")
	e.answered(dlq.Added, l)
	e.applied(resolve(e.claim("a")))
	e.answered(dlq.Added, l) // a late copy makes no new letter
	e.wantTotals(0, 0, 1, 0, 0)
}

func putDuplicate(e *env) {
	e.answered(dlq.Added, letter("a", "k"))
	before := e.record("a")
	e.tick()
	other := letter("a", "other key")
	other.Body, other.Digest, other.Delay = []byte("other body"), [32]byte{1}, longLease
	e.answered(dlq.Duplicate, other)
	after := e.record("a")
	if after.Seq != before.Seq || after.Key != "k" || string(after.Body) != "body of a" || after.Digest != before.Digest ||
		!after.Put.Equal(before.Put) || !after.Next.Equal(before.Next) || after.Tries != before.Tries {
		e.Fatalf("a duplicate made of %+v\n%+v", before, after)
	}
	e.wantTotals(1, 0, 0, 0, 0)
}

func putDuplicateFailure(e *env) {
	e.answered(dlq.Added, letter("a", "k"))
	again := letter("a", "k")
	again.Failure = failure(printB, "made it again")
	e.answered(dlq.Duplicate, again)
	r := e.record("a")
	if r.Fingerprint != printB || r.Log.Total() != 2 || len(r.Log.Last) != 1 || string(r.Log.Last[0].Detail) != "made it again" ||
		string(r.Log.First.Detail) != "made it" {
		e.Fatalf("the log after a duplicate is %+v", r)
	}
	e.answered(dlq.Duplicate, parked("a", "k")) // nothing has failed
	if r := e.record("a"); r.Fingerprint != printB || r.Log.Total() != 2 {
		e.Fatalf("a duplicate without failure changed the log: %+v", r)
	}
}

func putDuplicateReview(e *env) {
	e.letters("k", "a")
	e.reviewed("a")
	e.answered(dlq.Duplicate, letter("a", "k"))
	e.wantState("a", dlq.StateReview, 1)
	e.nothing()
}

func putDuplicateBegun(e *env) {
	e.letters("k", "a", "b")
	c := e.claim("a")
	again := parked("a", "k") // without a failure the try goes on
	again.IfBlocked = false
	e.answered(dlq.Duplicate, again)
	e.applied(resolve(c))
	c = e.claim("b")
	again = letter("b", "k")
	again.Delay = longLease
	e.answered(dlq.Duplicate, again)
	before := e.wantState("b", dlq.StateWaiting, 1)
	if d := before.Next.Sub(before.Put); before.Log.Total() != 2 || d < longLease {
		e.Fatalf("a letter that was put while it was tried is due %v after it was put, with the log %+v", d, before.Log)
	}
	e.stale(resolve(c), retry(c, 0), review(c))
	if after := e.record("b"); describeRecord(after) != describeRecord(before) {
		e.Fatalf("stale settlements made of %s\n%s", describeRecord(before), describeRecord(after))
	}
	e.applied(settlement(dlq.KindExtend, c)) // the lane is its worker's
	e.applied(release(c))
	e.nothing() // for an hour
	e.does(dlq.ChangeApprove, "b")
	c = e.claim("b")
	e.answered(dlq.Duplicate, letter("b", "k")) // due at once, when the lane is free
	e.nothing()
	e.applied(release(c))
	if c = e.claim("b"); c.Record.Tries != 2 {
		e.Fatalf("the next try is the %d., want the second", c.Record.Tries)
	}
	e.applied(resolve(c))
}

func putAfterEnd(e *env) {
	e.letters("k", "a")
	e.applied(resolve(e.claim("a")))
	e.letters("k", "a")
	e.does(dlq.ChangeDiscard, "a")
	e.letters("k", "a")
	e.does(dlq.ChangeReject, "a")
	e.letters("k", "a")
	e.wantTotals(1, 0, 1, 1, 1)
	rs := e.list(dlq.Query{ID: "a"})
	if len(rs) != 4 || rs[3].State != dlq.StateWaiting {
		e.Fatalf("a letter that ended three times and came again is %+v", rs)
	}
	e.claim("a")
}

func putIfBlocked(e *env) {
	e.answered(dlq.NotBlocked, parked("a", "k"))
	e.wantTotals(0, 0, 0, 0, 0)
	e.letters("k", "first")
	e.answered(dlq.NotBlocked, parked("a", "other"))
	e.answered(dlq.Added, parked("a", "k"))
	r := e.wantState("a", dlq.StateWaiting, 0)
	if r.Fingerprint != "" || r.Log.Total() != 0 || r.Log.First.Fingerprint != "" {
		e.Fatalf("a parked letter has the log %+v", r.Log)
	}
	e.reviewed("first")
	e.tick()
	e.answered(dlq.Added, parked("b", "k")) // a letter in review blocks, too
	e.nothing()
	e.does(dlq.ChangeDiscard, "first")
	e.applied(resolve(e.claim("a")))
	e.answered(dlq.Added, parked("c", "k")) // b blocks
	e.applied(resolve(e.claim("b")))
	e.applied(resolve(e.claim("c")))
	e.answered(dlq.NotBlocked, parked("d", "k"))
}

func putIfBlockedAlone(e *env) {
	e.answered(dlq.NotBlocked, parked("a", ""))
	e.letters("", "b")
	e.answered(dlq.NotBlocked, parked("a", ""))
	e.answered(dlq.NotBlocked, parked("c", "b")) // the key b is not the letter b
	e.answered(dlq.Duplicate, parked("b", ""))
}

func putIfBlockedEnded(e *env) {
	e.letters("k", "a", "b", "c")
	e.does(dlq.ChangeDiscard, "a")
	e.does(dlq.ChangeReject, "b")
	e.answered(dlq.Added, parked("d", "k"))
	e.does(dlq.ChangeForget, "d")
	e.does(dlq.ChangeSkip, "c") // a letter aside does not block
	e.answered(dlq.NotBlocked, parked("d", "k"))
}

func putStreams(e *env) {
	e.letters("k", "a")
	other := letter("a", "k")
	other.Stream = "second"
	e.answered(dlq.Added, other)
	e.wantIn(dlq.Query{}, "a")
	e.wantIn(dlq.Query{Stream: "second"}, "a")
	if c := e.claimable("a"); len(c) != 1 || c[0].Record.Stream != stream {
		e.Fatalf("a claim got %+v", c)
	}
	a := newAsk()
	a.Stream = "second"
	c := e.ask(a).Claims
	if len(c) != 1 {
		e.Fatalf("a claim of the other stream got %q", claimedIDs(c))
	}
	e.applied(resolve(c[0]))
	e.wantState("a", dlq.StateWaiting, 1)
	if all := e.totals(); len(all) != 2 || all[0].Stream != stream || all[0].Waiting != 1 || all[1].Stream != "second" || all[1].Resolved != 1 {
		e.Fatalf("the totals of two streams are %+v", all)
	}
}

func putFull(e *env) {
	e.p.Capacity = 3
	e.letters("k", "a", "b", "c")
	e.answered(dlq.Full, letter("d", "k"))
	e.answered(dlq.Full, parked("d", "k"))
	e.answered(dlq.NotBlocked, parked("d", "other")) // the earlier rule
	e.answered(dlq.Duplicate, letter("a", "k"))
	other := letter("a", "k")
	other.Stream = "second"
	e.answered(dlq.Added, other)
	e.reviewed("a")
	e.answered(dlq.Full, letter("d", "k")) // in review it is unresolved
	e.does(dlq.ChangeDiscard, "a")
	e.answered(dlq.Added, letter("d", "k"))
	e.answered(dlq.Full, letter("e", "k"))
	e.does(dlq.ChangeForget, "d")
	e.answered(dlq.Added, letter("e", "k"))
}

func putBatch(e *env) {
	e.p.Capacity = 3
	got := e.put(parked("z", "k"), letter("a", "k"), parked("b", "k"), letter("a", "k"), letter("c", ""), letter("d", ""))
	want := []dlq.Answer{dlq.NotBlocked, dlq.Added, dlq.Added, dlq.Duplicate, dlq.Added, dlq.Full}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		e.Fatalf("a batch was answered %v, want %v", got, want)
	}
	e.wantIn(dlq.Query{Key: "k"}, "a", "b")
	if r := e.record("a"); r.Log.Total() != 2 {
		e.Fatalf("the letter %+v", r)
	}
}

func putMany(e *env) {
	n, lanes := e.many(), e.many()/3
	var letters []dlq.Put
	for i := range n {
		letters = append(letters, letter(fmt.Sprintf("l%04d", i), fmt.Sprint("k", i%lanes)))
	}
	for i, a := range e.put(letters...) {
		if a != dlq.Added {
			e.Fatalf("letter %d of many was answered %v", i, a)
		}
	}
	e.wantTotals(n, 0, 0, 0, 0)
	a := newAsk()
	a.N = 1000
	if c := e.ask(a).Claims; len(c) != lanes {
		e.Fatalf("a claim of %d lanes got %d", lanes, len(c))
	}
}

// What is kept of a letter.
var fieldCases = []testCase{
	{name: "EveryFieldIsKept", run: fieldsKept},
	{name: "BodiesAreBytes", run: fieldBytes},
	{name: "NamesAreExact", run: fieldNames},
	{name: "LongNames", run: fieldLong},
	{name: "SlicesAreNotShared", run: fieldShared, once: true},
	{name: "LogKeepsFirstAndLast", run: fieldLog},
}

func fieldsKept(e *env) {
	l := letter("a", "k")
	l.Delay = time.Hour
	e.answered(dlq.Added, l)
	r := e.record("a")
	if r.Stream != stream || r.ID != "a" || r.Key != "k" || r.Seq == 0 || !bytes.Equal(r.Body, l.Body) || r.Digest != l.Digest || r.Fingerprint != printA {
		e.Fatalf("the letter %+v is kept as %+v", l, r)
	}
	if f := r.Log.First; !f.At.Equal(failedAt) || f.Fingerprint != printA || string(f.Detail) != "made it" || len(r.Log.Last)+len(r.Log.Folds)+r.Log.Others != 0 {
		e.Fatalf("the log of a new letter is %+v", r.Log)
	}
	if d := r.Next.Sub(r.Put); d != time.Hour {
		e.Fatalf("a letter with a delay of an hour is due after %v", d)
	}
	if r.Put.UnixMicro()*1000 != r.Put.UnixNano() {
		e.Fatalf("the time %v is finer than a microsecond", r.Put)
	}
}

func fieldBytes(e *env) {
	for i, body := range [][]byte{{0, 255, 0}, []byte("\x00"), bytes.Repeat([]byte{7}, 1<<20), []byte(`{"a":"\u0000"}`), {}} {
		l := letter(fmt.Sprint("l", i), "")
		l.Body, l.Failure.Detail = body, []byte{0, 1, 255, byte(i)}
		e.answered(dlq.Added, l)
		r := e.record(l.ID)
		if !bytes.Equal(r.Body, body) || !bytes.Equal(r.Log.First.Detail, l.Failure.Detail) {
			e.Fatalf("a body of %d bytes came back with %d, the detail %v as %v", len(body), len(r.Body), l.Failure.Detail, r.Log.First.Detail)
		}
	}
}

func fieldNames(e *env) {
	names := []string{"a", "A", " a", "a ", "ä", "a\u0308", "'", `"`, "%", "_", "\\", "{a}", "a:b", "a/b", "\u202ea", "<b>", "\x01"}
	for _, n := range names {
		e.answered(dlq.Added, letter(n, ""))
		e.answered(dlq.NotBlocked, parked("other", n))
	}
	for _, n := range names {
		e.answered(dlq.Added, letter("id of "+n, n))
		e.wantIn(dlq.Query{ID: n}, n)
		e.wantIn(dlq.Query{Key: n}, "id of "+n)
	}
	if c := e.ask(newAsk()).Claims; len(c) != 2*len(names) {
		e.Fatalf("%d letters in lanes of their own are claimed as %d", 2*len(names), len(c))
	}
}

func fieldLong(e *env) {
	long := strings.Repeat("k", 510) + "ü"
	e.letters(long, long, long[:510])
	c := e.claim(long)
	e.nothing()
	e.applied(resolve(c))
	e.claim(long[:510])
}

func fieldShared(e *env) {
	l := letter("a", "k")
	e.answered(dlq.Added, l)
	clear(l.Body)
	clear(l.Failure.Detail)
	c := e.claim("a")
	clear(c.Record.Body)
	clear(c.Record.Log.First.Detail)
	s := retry(c, longLease)
	e.applied(s)
	clear(s.Failure.Detail)
	r := e.record("a")
	clear(r.Body)
	clear(r.Log.Last)
	edit := change(dlq.ChangeEdit, r)
	e.changed(edit)
	clear(edit.Body)
	j := job("j")
	clear(e.save(j).Data)
	clear(j.Data)
	clear(e.progress("j").Data)
	if string(e.progress("j").Data) != "plan of j" {
		e.Fatalf("the job's data is %q", e.progress("j").Data)
	}
	r = e.record("a")
	if string(r.Body) != "edited body of a" || string(r.Original) != "body of a" || string(r.Log.First.Detail) != "made it" || string(r.Log.Last[0].Detail) != "failed again" {
		e.Fatalf("callers changed their slices, and the letter is %+v", r)
	}
}

func fieldLog(e *env) {
	e.letters("k", "a")
	var model dlq.Log
	model.Add(failure(printA, "made it"))
	for i := range 2*dlq.LogLast + 2*dlq.LogFolds + 6 {
		f := failure(fmt.Sprintf("%04x", i%(dlq.LogFolds+3)), fmt.Sprint("failure ", i))
		f.At = failedAt.Add(time.Duration(i) * time.Second)
		model.Add(f)
		s := retry(e.claim("a"), 0)
		s.Failure = f
		e.applied(s)
		e.tick()
	}
	r := e.record("a")
	if got, want := describeLog(r.Log), describeLog(model); got != want {
		e.Fatalf("the log is\n%s, want\n%s", got, want)
	}
	if n := 2*dlq.LogLast + 2*dlq.LogFolds + 7; r.Log.Total() != n || r.Log.Others == 0 || len(r.Log.Folds) != dlq.LogFolds {
		e.Fatalf("a log of %d failures has %d: %+v", n, r.Log.Total(), r.Log)
	}
}
