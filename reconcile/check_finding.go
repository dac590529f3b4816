package reconcile

import (
	"slices"
	"strings"
)

// A finding is one in a [CheckMemory]: its methods are the rules of [CheckStore]. The times in
// it are in microseconds since 1970, and zero is never; those in Finding are not used.
type finding struct {
	Finding
	first, last, opened, due, expires int64
	nonce                             [16]byte // of the last report that changed it
	outcome                           Outcome
}

func (f *finding) expired(now int64) bool { return f.expires != 0 && f.expires <= now }

func (f *finding) unresolved() bool {
	return f.State == Suspected || f.State == Open || f.State == Acknowledged
}

// counts is 1 for one that is unresolved, and 0 for any other, and for none.
func (f *finding) counts() int {
	if f != nil && f.unresolved() {
		return 1
	}
	return 0
}

// dismissed says that a person has seen to it, and it was there all the time since.
func (f *finding) dismissed(now int64, p CheckParams) bool {
	return f.State == Resolved && f.By != "" && now-f.last <= p.Lull.Microseconds()
}

// wakes says that a report makes a resolved finding unresolved.
func (f *finding) wakes(now int64, p CheckParams, v ReportVerb) bool {
	return (v == ReportSuspect || v == ReportRaise) && f.State == Resolved && !f.dismissed(now, p)
}

// report is rule 4 of [CheckStore.Report]; a finding without state is new.
func (f *finding) report(now int64, p CheckParams, r *Report) (o Outcome, erase bool) {
	dismissed := f.dismissed(now, p)
	switch r.Verb {
	case ReportSuspect, ReportRaise:
		o = f.seen(now, p, r, dismissed)
		f.last = now
		f.Count += r.N
		f.Account = strings.Clone(r.Account)
		if o != Counted || r.Verb == ReportRaise {
			f.Detail = strings.Clone(r.Detail)
		}
		if dismissed {
			f.expires = now + p.Retention.Microseconds()
		}
		return o, false
	case ReportWait:
		if !f.unresolved() {
			return Nothing, false
		}
		f.due = now + r.Delay.Microseconds()
		return Applied, false
	case ReportAcknowledge:
		if f.State != Open {
			return Nothing, false
		}
		f.become(now, Acknowledged, r)
		return Applied, false
	}
	if !f.unresolved() { // Clear, Resolve
		return Nothing, false
	}
	if r.Verb == ReportClear && f.State == Suspected && f.Times == 0 {
		return Applied, true
	}
	f.become(now, Resolved, r)
	f.due, f.expires = 0, now+p.Retention.Microseconds()
	return Applied, false
}

// seen applies Suspect and Raise to the state.
func (f *finding) seen(now int64, p CheckParams, r *Report, dismissed bool) Outcome {
	switch {
	case dismissed:
		return Counted
	case r.Verb == ReportSuspect && f.unresolved():
		return Counted
	case r.Verb == ReportSuspect:
		f.become(now, Suspected, r)
		f.due, f.expires = now+r.Delay.Microseconds(), 0
		return Doubtful
	}
	f.due, f.expires = now+r.Delay.Microseconds(), 0
	if f.State == Open || f.State == Acknowledged {
		return Counted
	}
	f.become(now, Open, r)
	f.Times++
	f.opened = now
	if f.Times > 1 {
		return Reopened
	}
	return Raised
}

// become changes the state and appends to the log, which is bounded.
func (f *finding) become(now int64, s FindingState, r *Report) {
	f.State, f.By, f.Note = s, strings.Clone(r.By), strings.Clone(r.Note)
	f.Version = max(f.Version+1, uint64(now))
	if len(f.Log) == MaxLog {
		f.Log = slices.Delete(f.Log, 4, 5)
		f.Dropped++
	}
	f.Log = append(f.Log, Change{At: at(now), State: s, By: f.By, Note: f.Note})
}

func (f *finding) selected(q *FindingQuery) bool {
	return (q.Check == "" || q.Check == f.Check) && (q.Subject == "" || q.Subject == f.Subject) &&
		(q.Account == "" || q.Account == f.Account) && (q.State == 0 || q.State == f.State) && (!q.Unresolved || f.unresolved())
}

// read is a copy, for the caller to keep.
func (f *finding) read(now int64) Finding {
	c := f.Finding
	c.Read, c.First, c.Last, c.Opened, c.Due, c.Expires = at(now), at(f.first), at(f.last), at(f.opened), at(f.due), at(f.expires)
	c.Log = slices.Clone(f.Log)
	return c
}
