package boltdlq

import (
	"time"

	"github.com/pawl-go/pawl/dlq"
)

func (st *step) saveJob(p dlq.Params, j *dlq.Job) (savedJob, error) {
	row, known, err := st.job(j.Stream, j.ID)
	switch {
	case err != nil:
		return savedJob{}, err
	case known && row.Nonce == j.Nonce: // saved before
		return savedJob{job: row.Job}, nil
	case !known && j.Version > 0:
		return savedJob{refused: dlq.ErrNotFound}, nil
	case known && row.Version != j.Version:
		return savedJob{job: row.Job, refused: dlq.ErrChanged}, nil
	}
	before := row
	if !known {
		row = job{Job: dlq.Job{Stream: j.Stream, ID: j.ID, Created: time.UnixMicro(st.now)}}
	}
	row.Nonce, row.Data, row.Ended = j.Nonce, append([]byte{}, j.Data...), j.Ended
	row.Version++
	row.Updated, row.expires = time.UnixMicro(st.now), st.now+p.Retention.Microseconds()
	if err := st.relist(st.expiring, before.forgets(), row.forgets()); err != nil {
		return savedJob{}, err
	}
	return savedJob{job: row.Job}, st.putJob(&row)
}

// job returns a redrive job.
func (st *step) job(stream, id string) (j job, known bool, err error) {
	b := st.jobs.Get(nameKey(stream, id))
	if b == nil {
		return job{}, false, nil
	}
	j, err = decodeJob(stream, id, b)
	return j, true, err
}

func (st *step) putJob(j *job) error {
	return st.write(st.jobs, nameKey(j.Stream, j.ID), j.append(nil))
}

// forgets is the key under which a job waits to be forgotten, or nil.
func (j *job) forgets() []byte {
	return expiringKey(j.forgetAt(), jobExpires, nameKey(j.Stream, j.ID))
}

// What a job counts.
func released(j *job) *int  { return &j.Released }
func passed(j *job) *int    { return &j.Passed }
func notPassed(j *job) *int { return &j.Failed }
func moved(j *job) *int     { return &j.Moved }

// outcome has the job that released a letter count what became of it, once.
func (st *step) outcome(l *letter, which func(*job) *int) error {
	if !l.counted {
		return nil
	}
	l.counted = false
	return st.tellJob(l, which)
}

// tellJob adds one to what a letter's job counts, if the job is still there.
func (st *step) tellJob(l *letter, which func(*job) *int) error {
	j, known, err := st.job(l.stream, l.job)
	if err != nil || !known {
		return err
	}
	*which(&j)++
	return st.putJob(&j)
}

func (st *step) alert(alarms []dlq.Alarm) ([]bool, error) {
	isFirst := make([]bool, len(alarms))
	for i := range alarms {
		var err error
		if isFirst[i], err = st.alertOne(&alarms[i]); err != nil {
			return nil, err
		}
	}
	return isFirst, nil
}

func (st *step) alertOne(n *dlq.Alarm) (isFirst bool, err error) {
	key := nameKey(n.Stream, n.Fingerprint)
	var before alarm
	if b := st.alarms.Get(key); b != nil {
		if before, err = decodeAlarm(b); err != nil {
			return false, err
		}
		if before.nonce == n.Nonce {
			return true, nil
		}
		if st.now < before.expires {
			return false, nil
		}
	}
	after := alarm{nonce: n.Nonce, expires: st.now + n.Window.Microseconds()}
	if err := st.relist(st.expiring, before.forgets(key), after.forgets(key)); err != nil {
		return false, err
	}
	return true, st.write(st.alarms, key, after.append(nil))
}

// forgets is the key under which the alarm with a key waits to be forgotten, or nil.
func (a *alarm) forgets(key []byte) []byte { return expiringKey(a.expires, alarmExpires, key) }
