package inbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"
)

// failures are those of the record with the one of this attempt behind them: the
// first of all and the last ones.
func failures(r *Record, attempt int, text string) []Failure {
	all := append(slices.Clone(r.Failures), Failure{Attempt: attempt, At: time.UnixMicro(time.Now().UnixMicro()), Error: text})
	if n := len(all); n > MaxFailures {
		all = slices.Delete(all, 1, 1+n-MaxFailures)
	}
	return all
}

// overdue makes the outcome of a record that has no attempt left and is not dead.
// Either its last attempt left no failure, since it did not return or was
// interrupted; that is noted now. Or the dead-letter function has failed, and what
// the attempts said stands.
func (w *worker) overdue(r *run) Outcome {
	if n := len(r.record.Failures); n > 0 && r.record.Failures[n-1].Attempt >= w.opts.MaxAttempts {
		return Dead(errors.New(r.record.Failures[n-1].Error))
	}
	o := Dead(fmt.Errorf("given up after %d attempts; the last one did not return or was interrupted", w.opts.MaxAttempts))
	r.record.Failures = failures(r.record, r.record.Attempts-1, o.text())
	return o
}

// bury calls the dead-letter function of a record that is about to be dead. When it
// fails, the settlement becomes a retry.
func (w *worker) bury(r *run, s *Settlement) {
	if s.Kind != KindDead || w.opts.DeadLetter == nil {
		return
	}
	letter := *r.record
	letter.LastError, letter.Failures = s.Error, slices.Clone(s.Failures)
	err := w.callDeadLetter(r, letter)
	if err == nil {
		return
	}
	w.box.counts.deadLetters.Add(1)
	w.box.warn(r, "the dead-letter function failed; the event is not dead and is tried again",
		"provider", r.record.Provider, "type", r.record.Type, "id", short(r.record.ID), "attempts", r.record.Attempts, "cause", kindOf(err))
	s.Kind = KindRetry
	s.Error = cut("not dead, since the dead-letter function failed: " + Failed(err).text() + "; the attempt: " + s.Error)
	s.Delay = w.backoff(r.record.Attempts)
}

// callDeadLetter calls the function on a goroutine of its own, so that one that
// does not return holds up its key for no longer than a lease.
func (w *worker) callDeadLetter(r *run, letter Record) error {
	if w.letters.Add(1) > 2*int64(w.opts.Concurrency) {
		w.letters.Add(-1)
		return errLettersStuck
	}
	ctx, cancel := context.WithTimeoutCause(r, w.opts.Lease, errLetterLate)
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		err := errExited
		defer func() {
			if recover() != nil {
				err = errLetterPanic
				w.box.counts.panics.Add(1)
				w.box.warn(ctx, "the dead-letter function panicked", "provider", letter.Provider, "type", letter.Type,
					"id", short(letter.ID), "stack", stack())
			}
			w.letters.Add(-1)
			answer <- err
		}()
		err = w.opts.DeadLetter(ctx, letter)
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var (
	errLetterLate   = errors.New("inbox: the dead-letter function did not return in time")
	errLetterPanic  = errors.New("inbox: the dead-letter function panicked")
	errLettersStuck = errors.New("inbox: too many calls of the dead-letter function have not returned")
)

// kindOf is what may be logged of an error that a user's function made: its text
// may hold personal data. It must not panic, as the error's own methods may: nobody
// would recover from it.
func kindOf(err error) (kind string) {
	defer func() {
		if recover() != nil {
			kind = fmt.Sprintf("%T", err)
		}
	}()
	switch err { // and nothing that says of itself that it is one of them
	case errLetterLate, errLetterPanic, errLettersStuck, errExited:
		return err.Error()
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrStale), errors.Is(err, ErrDraining):
		return "its context had ended"
	}
	return fmt.Sprintf("%T", err)
}

func stack() string { return string(debug.Stack()) }
