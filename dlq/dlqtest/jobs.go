package dlqtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/dlq"
)

// Jobs, and alarms.
var jobCases = []testCase{
	{name: "SaveJobCreatesOnce", run: jobCreate},
	{name: "SaveJobComparesVersions", run: jobVersions},
	{name: "SaveJobOfTheSameNonce", run: jobNonce},
	{name: "JobsArePaged", run: jobPages},
	{name: "AJobCountsItsLetters", run: jobCounts},
	{name: "AJobCountsALetterOnce", run: jobCountsOnce},
	{name: "AJobCountsWhatIsChanged", run: jobMoved},
	{name: "ApproveForAnUnknownJob", run: jobUnknown},
	{name: "CountsSurviveASave", run: jobSaveCounts},
	{name: "OneAlarmInAWindow", run: alarmWindow},
	{name: "AlarmsAreApart", run: alarmsApart},
}

func jobCreate(e *env) {
	first := e.save(job("j"))
	if first.Version != 1 || string(first.Data) != "plan of j" || first.Ended || first.Created.IsZero() || !first.Updated.Equal(first.Created) {
		e.Fatalf("a new job is %+v", first)
	}
	other := job("j")
	other.Data = []byte("other plan")
	got, err := e.store.SaveJob(context.Background(), e.p, other)
	if !errors.Is(err, dlq.ErrChanged) || string(got.Data) != "plan of j" || got.Version != 1 {
		e.Fatalf("a second job of the same ID was answered %+v and %v", got, err)
	}
	other.Stream = "second"
	e.save(other)
}

func jobVersions(e *env) {
	first := e.save(job("j"))
	e.tick()
	next := first
	next.Nonce, next.Data, next.Ended = nonce(), []byte("next"), true
	second := e.save(next)
	if second.Version != 2 || string(second.Data) != "next" || !second.Ended || !second.Updated.After(first.Updated) || !second.Created.Equal(first.Created) {
		e.Fatalf("the next version of %+v is %+v", first, second)
	}
	late := first
	late.Nonce, late.Data = nonce(), []byte("late")
	got, err := e.store.SaveJob(context.Background(), e.p, late)
	if !errors.Is(err, dlq.ErrChanged) || got.Version != 2 || string(got.Data) != "next" {
		e.Fatalf("a save of an old version was answered %+v and %v", got, err)
	}
	unknown := job("unknown")
	unknown.Version = 3
	if _, err := e.store.SaveJob(context.Background(), e.p, unknown); !errors.Is(err, dlq.ErrNotFound) {
		e.Fatalf("a save of an unknown job was answered %v", err)
	}
}

func jobNonce(e *env) {
	j := job("j")
	e.save(j)
	if got := e.save(j); got.Version != 1 {
		e.Fatalf("a save sent twice made version %d", got.Version)
	}
}

func jobPages(e *env) {
	for i := range 5 {
		e.save(job(fmt.Sprint("j", i)))
	}
	var got []string
	for after := ""; ; {
		js, err := e.store.Jobs(context.Background(), stream, after, 2)
		if err != nil {
			e.Fatal(err)
		}
		for _, j := range js {
			got = append(got, j.ID)
			after = j.ID
		}
		if len(js) < 2 {
			break
		}
	}
	if fmt.Sprint(got) != "[j0 j1 j2 j3 j4]" {
		e.Fatalf("the jobs are %q", got)
	}
	if js, err := e.store.Jobs(context.Background(), "second", "", 10); err != nil || len(js) != 0 {
		e.Fatalf("the jobs of another stream are %+v, %v", js, err)
	}
}

// released approves the letters under a job.
func (e *env) released(j string, ids ...string) {
	e.Helper()
	for _, id := range ids {
		c := change(dlq.ChangeApprove, e.record(id))
		c.Job = j
		e.changed(c)
	}
}

// wantCounts checks what a job has counted.
func (e *env) wantCounts(id string, released, passed, failed, moved int) {
	e.Helper()
	if j := e.progress(id); j.Released != released || j.Passed != passed || j.Failed != failed || j.Moved != moved {
		e.Fatalf("the job %+v should have released %d, passed %d, failed %d, moved %d", j, released, passed, failed, moved)
	}
}

func jobCounts(e *env) {
	e.save(job("j"))
	e.letters("1", "a")
	e.letters("2", "b")
	e.letters("3", "c")
	e.released("j", "a", "b", "c")
	e.wantCounts("j", 3, 0, 0, 0)
	if r := e.record("a"); r.Job != "j" {
		e.Fatalf("the letter %+v should be the job's", r)
	}
	e.wantIn(dlq.Query{Job: "j"}, "a", "b", "c")
	for _, c := range e.claimable("a", "b", "c") {
		switch c.Record.ID {
		case "a":
			e.applied(resolve(c))
		case "b":
			e.applied(retry(c, longLease))
		case "c":
			e.applied(review(c))
		}
	}
	e.wantCounts("j", 3, 1, 2, 0)
}

func jobCountsOnce(e *env) {
	e.save(job("j"))
	e.letters("k", "a")
	e.released("j", "a")
	c := e.claim("a")
	e.applied(release(c)) // no outcome
	e.wantCounts("j", 1, 0, 0, 0)
	e.applied(retry(e.claim("a"), 0))
	e.wantCounts("j", 1, 0, 1, 0)
	e.applied(resolve(e.claim("a")))
	e.wantCounts("j", 1, 0, 1, 0)
}

func jobMoved(e *env) {
	e.save(job("j"))
	e.save(job("next"))
	e.letters("1", "a")
	e.letters("2", "b")
	e.letters("3", "c")
	e.letters("4", "d")
	e.released("j", "a", "b", "c", "d")
	e.changed(change(dlq.ChangeNote, e.record("a")))
	e.wantCounts("j", 4, 0, 0, 0)
	e.does(dlq.ChangeDiscard, "a")
	e.released("next", "b")
	e.does(dlq.ChangeForget, "c")
	e.wantCounts("j", 4, 0, 0, 3)
	e.wantCounts("next", 1, 0, 0, 0)
	e.released("j", "d")
	e.wantCounts("j", 5, 0, 0, 4)
	e.does(dlq.ChangeApprove, "d") // by hand
	e.wantCounts("j", 5, 0, 0, 5)
	if r := e.record("d"); r.Job != "j" {
		e.Fatalf("the letter %+v was last released by the job", r)
	}
	for _, c := range e.claimable("b", "d") {
		e.applied(resolve(c))
	}
	e.wantCounts("j", 5, 0, 0, 5)
	e.wantCounts("next", 1, 1, 0, 0)
}

func jobUnknown(e *env) {
	e.letters("k", "a")
	e.reviewed("a")
	c := change(dlq.ChangeApprove, e.record("a"))
	c.Job = "unknown"
	e.refused(dlq.ErrNotFound, c)
	e.wantState("a", dlq.StateReview, 1)
}

func jobSaveCounts(e *env) {
	j := e.save(job("j"))
	e.letters("k", "a")
	e.released("j", "a")
	j.Nonce = nonce()
	j.Released, j.Passed = 17, 4 // a caller's numbers do not count
	if got := e.save(j); got.Released != 1 || got.Passed != 0 {
		e.Fatalf("the saved job is %+v", got)
	}
	e.wantCounts("j", 1, 0, 0, 0)
}

// alert raises an alarm.
func (e *env) alert(stream, print string, window time.Duration) bool {
	e.Helper()
	first, err := e.store.Alert(context.Background(), []dlq.Alarm{{Nonce: nonce(), Stream: stream, Fingerprint: print, Window: window}})
	if err != nil || len(first) != 1 {
		e.Fatalf("Alert returned %v and %v", first, err)
	}
	return first[0]
}

func alarmWindow(e *env) {
	if !e.alert(stream, printA, longLease) || e.alert(stream, printA, longLease) || e.alert(stream, printA, time.Microsecond) {
		e.Fatal("an alarm was not the first within its window, or another was, too")
	}
	if !e.alert(stream, printB, e.short) {
		e.Fatal("the first alarm of a fingerprint was not the first")
	}
	e.wait()
	if !e.alert(stream, printB, longLease) || e.alert(stream, printB, longLease) {
		e.Fatal("after the window an alarm is the first again, and one alone")
	}
}

func alarmsApart(e *env) {
	if !e.alert(stream, printA, longLease) || !e.alert(stream, printB, longLease) || !e.alert("second", printA, longLease) {
		e.Fatal("an alarm of another fingerprint or stream was taken for the same")
	}
	alarms := []dlq.Alarm{
		{Nonce: nonce(), Stream: stream, Fingerprint: "01", Window: longLease}, {Nonce: nonce(), Stream: stream, Fingerprint: "01", Window: longLease},
		{Nonce: nonce(), Stream: stream, Fingerprint: "02", Window: longLease},
	}
	first, err := e.store.Alert(context.Background(), alarms)
	if err != nil || fmt.Sprint(first) != "[true false true]" {
		e.Fatalf("a batch of alarms was answered %v, %v", first, err)
	}
}
