package dlqtest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-go/pawl/dlq"
)

// describeRecord describes all of a letter but its number, which need not be
// memory's.
func describeRecord(r dlq.Record) string {
	var s strings.Builder
	fmt.Fprintf(&s, "[%s/%s of %q %v aside %t, body %q (%x), original %q, print %q, %d tries, job %q, times", r.Stream, r.ID, r.Key, r.State,
		r.Aside, r.Body, r.Digest[:2], r.Original, r.Fingerprint, r.Tries, r.Job)
	for _, t := range []time.Time{r.Put, r.Next, r.Settled, r.Expires} {
		fmt.Fprint(&s, " ", t.UnixMicro())
	}
	return s.String() + "; " + describeLog(r.Log) + "]"
}

func describeLog(l dlq.Log) string {
	var s strings.Builder
	fmt.Fprintf(&s, "first %s, last", describeFailure(l.First))
	for _, f := range l.Last {
		s.WriteString(" " + describeFailure(f))
	}
	for _, f := range l.Folds {
		fmt.Fprintf(&s, "; %d of %s from %d to %d", f.Count, f.Fingerprint, f.First.UnixMicro(), f.Last.UnixMicro())
	}
	fmt.Fprintf(&s, "; %d others", l.Others)
	return s.String()
}

func describeFailure(f dlq.Failure) string {
	if f.Fingerprint == "" {
		return "none"
	}
	return fmt.Sprintf("%s at %d: %q", f.Fingerprint, f.At.UnixMicro(), f.Detail)
}

func describeRecords(rs []dlq.Record) string {
	var s strings.Builder
	for i, r := range rs {
		if i > 0 && r.Seq <= rs[i-1].Seq {
			s.WriteString("not behind the last: ")
		}
		s.WriteString(describeRecord(r) + " ")
	}
	return s.String()
}

func describeClaimed(c dlq.Claimed) string {
	var s strings.Builder
	fmt.Fprint(&s, "next in ", c.Next)
	for _, k := range c.Claims {
		fmt.Fprintf(&s, "; %s token %d, %v left: %s", k.Lane, k.Token, k.Left, describeRecord(k.Record))
	}
	return s.String()
}

func describeGroups(gs []dlq.Group) string {
	var s strings.Builder
	for _, g := range gs {
		fmt.Fprintf(&s, "[%s/%s: %d and %d from %d to %d]", g.Stream, g.Fingerprint, g.Waiting, g.Review, g.First.UnixMicro(), g.Last.UnixMicro())
	}
	return s.String()
}

func describeJob(j dlq.Job) string {
	return fmt.Sprintf("[%s/%s version %d %q ended %t at %d %d: %d %d %d %d]", j.Stream, j.ID, j.Version, j.Data, j.Ended,
		j.Created.UnixMicro(), j.Updated.UnixMicro(), j.Released, j.Passed, j.Failed, j.Moved)
}

// describeErrors says how a batch was answered, whatever the words.
func describeErrors(errs []error, n int) string {
	var s strings.Builder
	for i := range n {
		switch err := errorAt(errs, i); {
		case err == nil:
			s.WriteString("applied ")
		case errors.Is(err, dlq.ErrStale):
			s.WriteString("stale ")
		case errors.Is(err, dlq.ErrNotFound):
			s.WriteString("not found ")
		case errors.Is(err, dlq.ErrState):
			s.WriteString("state ")
		case errors.Is(err, dlq.ErrChanged):
			s.WriteString("changed ")
		default:
			fmt.Fprint(&s, err, " ")
		}
	}
	return s.String()
}
