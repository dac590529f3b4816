package dlqtest

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"

	"github.com/pawl-go/pawl/dlq"
)

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
