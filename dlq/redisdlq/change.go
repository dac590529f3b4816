package redisdlq

import (
	"context"
	_ "embed"
	"strconv"

	"github.com/pawl-go/pawl/dlq"
)

//go:embed change.lua
var changeText string

//go:embed job.lua
var jobText string

//go:embed alert.lua
var alertText string

var (
	changeScript = script(changeText)
	jobScript    = script(jobText)
	alertScript  = script(alertText)
)

// Change implements [dlq.Store]. It is one round trip for up to 512 changes and 8 MiB.
func (s *Store) Change(ctx context.Context, p dlq.Params, changes []dlq.Change) ([]error, error) {
	var errs refusals
	err := send(ctx, s, changes, batch[dlq.Change]{
		step: "change", script: changeScript, header: []any{span(p.Retention), span(p.Audit)},
		stream: func(c *dlq.Change) string { return c.Stream },
		size:   func(c *dlq.Change) int { return len(c.Body) + len(c.Reason) },
		encode: func(args []any, c *dlq.Change) []any {
			letter, verb := changeWords(c)
			return append(args, letter, hexadecimal(c.Nonce), c.Stream, c.ID, digits(c.Seq), digestOrNone(c.Before), digest(c.After), c.Body,
				orNone(c.Job), verb, c.Actor, c.Reason)
		},
		answer: func(i int, letter byte) error {
			switch letter {
			case '.':
			case 'n':
				errs.add(i, len(changes), dlq.ErrNotFound)
			case 's':
				errs.add(i, len(changes), dlq.ErrState)
			case 'c':
				errs.add(i, len(changes), dlq.ErrChanged)
			case 'x':
				errs.add(i, len(changes), failed(ctx, "change", errRow))
			default:
				return errReply
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	return errs, nil
}

// changeWords returns what change.lua calls a change, and its verb in the audit.
func changeWords(c *dlq.Change) (letter, verb string) {
	switch c.Kind {
	case dlq.ChangeEdit:
		letter = "e"
	case dlq.ChangeApprove:
		letter = "a"
	case dlq.ChangeReject:
		letter = "r"
	case dlq.ChangeDiscard:
		letter = "d"
	case dlq.ChangeSkip:
		letter = "s"
	case dlq.ChangeForget:
		letter = "f"
	case dlq.ChangeNote:
		return "n", c.Verb
	}
	return letter, c.Kind.String()
}

// SaveJob implements [dlq.Store].
func (s *Store) SaveJob(ctx context.Context, p dlq.Params, j dlq.Job) (dlq.Job, error) {
	r, err := s.call(ctx, jobScript, j.Stream, span(p.Retention), j.Stream, j.ID, hexadecimal(j.Nonce), strconv.FormatUint(j.Version, 10),
		flag(j.Ended), j.Data)
	if err != nil {
		return dlq.Job{}, failed(ctx, "save a job", err)
	}
	var refused error
	switch r.text() {
	case ".":
	case "c":
		refused = dlq.ErrChanged
	case "n":
		return dlq.Job{}, dlq.ErrNotFound
	case "x":
		return dlq.Job{}, failed(ctx, "save a job", errRow)
	default:
		return dlq.Job{}, failed(ctx, "save a job", errReply)
	}
	saved, err := r.job(j.Stream, j.ID)
	if err != nil {
		return dlq.Job{}, failed(ctx, "save a job", err)
	}
	return saved, refused
}

// job reads a job: its row and its counts.
func (r *reader) job(stream, id string) (dlq.Job, error) {
	j := dlq.Job{Stream: stream, ID: id}
	ok := readJob(&j, r.text())
	for _, n := range []*int{&j.Released, &j.Passed, &j.Failed, &j.Moved} {
		*n = int(r.int())
	}
	if !ok || r.bad {
		return dlq.Job{}, errRow
	}
	return j, nil
}

// Alert implements [dlq.Store]. It is one round trip for up to 512 alarms.
func (s *Store) Alert(ctx context.Context, alarms []dlq.Alarm) ([]bool, error) {
	first := make([]bool, len(alarms))
	err := send(ctx, s, alarms, batch[dlq.Alarm]{
		step: "alert", script: alertScript,
		stream: func(a *dlq.Alarm) string { return a.Stream },
		size:   func(*dlq.Alarm) int { return 0 },
		encode: func(args []any, a *dlq.Alarm) []any {
			return append(args, a.Stream, a.Fingerprint, hexadecimal(a.Nonce), span(a.Window))
		},
		answer: func(i int, letter byte) error {
			switch letter {
			case '0', '1':
				first[i] = letter == '1'
				return nil
			case 'x':
				return errRow
			}
			return errReply
		},
	})
	if err != nil {
		return nil, err
	}
	return first, nil
}
