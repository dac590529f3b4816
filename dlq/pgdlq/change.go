package pgdlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/internal/pgcall"
)

// maxChanges is how many changes one call carries.
const maxChanges = 1000

// change sends changes in as few calls as it can.
func (s *Store) change(ctx context.Context, r pgcall.Route, p dlq.Params, changes []dlq.Change) ([]error, error) {
	refused := &refusals{n: len(changes)}
	for from := 0; from < len(changes); {
		to, bytes := from, 0
		for to < len(changes) && to-from < maxChanges && (to == from || bytes+len(changes[to].Body) <= maxBytes) {
			bytes += len(changes[to].Body)
			to++
		}
		if err := s.changeChunk(ctx, r, p, changes[from:to], from, refused); err != nil {
			return nil, err // what was applied is known by its nonce when it is sent again
		}
		from = to
	}
	return refused.errs, nil
}

func (s *Store) changeChunk(ctx context.Context, r pgcall.Route, p dlq.Params, changes []dlq.Change, from int, refused *refusals) error {
	n := len(changes)
	kinds, seqs := make([]int16, n), make([]int64, n)
	nonces, bodies, befores, afters := make([][]byte, n), make([][]byte, n), make([][]byte, n), make([][]byte, n)
	streams, ids, jobs, verbs := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	actors, reasons := make([]string, n), make([]string, n)
	approves, seen := true, make(map[int64]bool, n)
	for i := range changes {
		c := &changes[i]
		kinds[i], nonces[i], streams[i], ids[i], seqs[i], jobs[i] = int16(c.Kind), c.Nonce[:], c.Stream, c.ID, bigint(c.Seq), c.Job
		verbs[i], actors[i], reasons[i] = c.Kind.String(), c.Actor, c.Reason
		approves = approves && c.Kind == dlq.ChangeApprove && !seen[seqs[i]]
		seen[seqs[i]] = true
		if c.Before != [32]byte{} {
			befores[i] = c.Before[:]
		}
		switch c.Kind {
		case dlq.ChangeEdit:
			bodies[i], afters[i] = c.Body, c.After[:]
		case dlq.ChangeNote:
			verbs[i] = c.Verb
		}
	}
	return locking(r, func(mode int) error {
		return r.Call(ctx, func(rows pgx.Rows) error {
			var i, outcome int
			if err := rows.Scan(&i, &outcome); err != nil {
				return err
			}
			return refused.refuse(from+i-1, unchanged[outcome])
		}, s.sql.change, mode, approves, p.Retention.Microseconds(), p.Audit.Microseconds(), kinds, nonces, streams, ids, seqs, bodies, befores, afters,
			jobs, verbs, actors, reasons)
	})
}

var unchanged = map[int]error{
	1: dlq.ErrNotFound, 2: dlq.ErrState, 3: dlq.ErrChanged, 4: fmt.Errorf("pgdlq: change: %w", ErrBusy),
}

func (s *Store) saveJob(ctx context.Context, r pgcall.Route, p dlq.Params, j dlq.Job) (dlq.Job, error) {
	var saved dlq.Job
	outcome := -1
	err := r.Call(ctx, func(rows pgx.Rows) (err error) {
		saved, outcome, err = scanJob(rows)
		return err
	}, s.sql.saveJob, p.Retention.Microseconds(), j.Stream, j.ID, j.Nonce[:], bigint(j.Version), j.Data, j.Ended)
	switch {
	case err != nil:
		return dlq.Job{}, err
	case outcome == 0:
		return saved, nil
	case outcome == 1:
		return dlq.Job{}, dlq.ErrNotFound
	case outcome == 3:
		return saved, dlq.ErrChanged
	}
	return dlq.Job{}, errors.New("the server answered nothing")
}

// saving wraps what SaveJob returns, unless it is an answer.
func (s *Store) saving(err error) error {
	if err == dlq.ErrNotFound || err == dlq.ErrChanged {
		return err
	}
	return s.wrap("save a job", err)
}

func (s *Store) jobs(ctx context.Context, r pgcall.Route, stream, after string, n int) (jobs []dlq.Job, err error) {
	err = r.Call(ctx, func(rows pgx.Rows) error {
		j, _, err := scanJob(rows)
		jobs = append(jobs, j)
		return err
	}, s.sql.jobs, stream, after, n)
	if err != nil {
		return nil, err
	}
	return jobs, nil
}

// scanJob reads a row of the type dlq_job_row in schema/0007_jobs.sql.
func scanJob(rows pgx.Rows) (j dlq.Job, outcome int, err error) {
	var nonce []byte
	var version, created, updated int64
	err = rows.Scan(&outcome, &j.Stream, &j.ID, &nonce, &version, &j.Data, &j.Ended, &created, &updated, &j.Released, &j.Passed, &j.Failed, &j.Moved)
	copy(j.Nonce[:], nonce)
	j.Version, j.Created, j.Updated = uint64(version), time.UnixMicro(created), time.UnixMicro(updated)
	return j, outcome, err
}
