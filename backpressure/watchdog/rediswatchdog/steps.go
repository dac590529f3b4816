package rediswatchdog

import (
	"context"
	_ "embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/backpressure/watchdog"
	"github.com/pawl-go/pawl/internal/redispart"
)

var (
	//go:embed lib.lua
	lib string
	//go:embed beat.lua
	beatText string
	//go:embed list.lua
	listText string
	//go:embed act.lua
	actText string

	beatScript = redispart.NewScript(lib + beatText)
	listScript = redispart.NewScript(lib + listText)
	actScript  = redispart.NewScript(lib + actText)
)

// Beat implements [watchdog.Store]. It is one round trip for up to 1000 beats.
func (s *Store) Beat(ctx context.Context, p watchdog.Params, beats []watchdog.Beat) ([]watchdog.Ack, error) {
	acks := make([]watchdog.Ack, 0, len(beats))
	for batch := range slices.Chunk(beats, watchdog.MaxBatch) {
		args := make([]any, 0, 2+2*len(batch))
		args = append(args, p.Scope, p.Most)
		for i := range batch {
			args = append(args, batch[i].Name, encodeBeat(&batch[i]))
		}
		reply, err := s.run(ctx, "beat", beatScript, p.Scope, len(batch), args)
		if err != nil {
			return nil, err
		}
		for _, answer := range reply {
			acks = append(acks, readAck(answer))
		}
	}
	return acks, s.ended(ctx, "beat")
}

// List implements [watchdog.Store].
func (s *Store) List(ctx context.Context, scope, after string, limit int) (watchdog.Page, error) {
	reply, err := s.run(ctx, "list", listScript, scope, -1, []any{scope, after, min(limit, watchdog.MaxBatch)})
	if err != nil {
		return watchdog.Page{}, err
	}
	page, err := readPage(reply)
	if err != nil {
		return watchdog.Page{}, failed(ctx, "list", err)
	}
	return page, nil
}

// Act implements [watchdog.Store]. It is one round trip for up to 1000 actions.
func (s *Store) Act(ctx context.Context, scope string, actions []watchdog.Action) ([]watchdog.Outcome, error) {
	outcomes := make([]watchdog.Outcome, 0, len(actions))
	for batch := range slices.Chunk(actions, watchdog.MaxBatch) {
		args := make([]any, 0, 1+2*len(batch))
		args = append(args, scope)
		for i := range batch {
			args = append(args, batch[i].Name, encodeAction(&batch[i]))
		}
		reply, err := s.run(ctx, "act", actScript, scope, len(batch), args)
		if err != nil {
			return nil, err
		}
		for _, answer := range reply {
			outcomes = append(outcomes, readOutcome(answer))
		}
	}
	return outcomes, s.ended(ctx, "act")
}

// ended is the error of a batch of nothing with a context that has ended.
func (s *Store) ended(ctx context.Context, step string) error {
	if err := ctx.Err(); err != nil {
		return failed(ctx, step, err)
	}
	return nil
}

// run runs a script once in the scope's partition. n is how many answers it has, -1
// if that is not known.
func (s *Store) run(ctx context.Context, step string, script *redispart.Script, scope string, n int, args []any) ([]string, error) {
	call := []redispart.Call{{Keys: s.keys[s.parts.Of(scope)], Args: args}}
	err := s.parts.Run(ctx, script, call)
	if err == nil && n >= 0 && len(call[0].Reply) != n {
		err = errReply
	}
	if err != nil {
		return nil, failed(ctx, step, err)
	}
	return call[0].Reply, nil
}

// encodeBeat returns what beat.lua takes for a beat, behind its name.
func encodeBeat(b *watchdog.Beat) string {
	w := make([]byte, 0, 192+len(b.Detail))
	w = flag(w, b.Join)
	w = flag(w, b.Leave)
	w = seq(w, b.Seq)
	w = number(w, uint64(micros(b.Interval)))
	w = number(w, uint64(b.State))
	for _, n := range []uint64{b.Position, b.Pending, b.Turns, b.Handler} {
		w = number(w, n)
	}
	w = flag(w, b.Busy)
	w = append(hex.AppendEncode(w, b.Nonce[:]), ' ')
	return string(append(w, b.Detail...))
}

// encodeAction returns what act.lua takes for an action, behind its name.
func encodeAction(a *watchdog.Action) string {
	w := make([]byte, 0, 192)
	w = number(w, uint64(a.Kind))
	w = append(hex.AppendEncode(w, a.Nonce[:]), ' ')
	w = number(w, a.Token)
	w = seq(w, a.Seq)
	w = number(w, uint64(micros(a.Stalled)))
	w = number(w, uint64(micros(a.Quiet)))
	w = number(w, a.Claim)
	w = number(w, uint64(micros(a.Wait)))
	return string(number(w, uint64(a.Most)))
}

func number(w []byte, n uint64) []byte { return append(strconv.AppendUint(w, n, 10), ' ') }

func seq(w []byte, n uint64) []byte { return fmt.Appendf(w, "%019d ", n) }

func flag(w []byte, yes bool) []byte {
	if yes {
		return append(w, "1 "...)
	}
	return append(w, "0 "...)
}

// micros rounds up, so that nothing ends early.
func micros(d time.Duration) int64 {
	return int64((max(d, 0) + time.Microsecond - 1) / time.Microsecond)
}

func readAck(answer string) watchdog.Ack {
	kind, rest := "", ""
	if answer != "" {
		kind, rest = answer[:1], answer[1:]
	}
	switch kind {
	case "t":
		token, err := strconv.ParseUint(rest, 10, 64)
		if err == nil {
			return watchdog.Ack{Token: token}
		}
	case "g":
		return watchdog.Ack{Err: watchdog.ErrGone}
	case "f":
		return watchdog.Ack{Err: watchdog.ErrFenced}
	case "l":
		return watchdog.Ack{Err: watchdog.ErrFull}
	case "x":
		return watchdog.Ack{Err: fmt.Errorf("rediswatchdog: beat: %w", errRow)}
	}
	return watchdog.Ack{Err: fmt.Errorf("rediswatchdog: beat: %w", errReply)}
}

func readOutcome(answer string) watchdog.Outcome {
	switch answer {
	case "o":
		return watchdog.Outcome{}
	case "u1", "u0":
		return watchdog.Outcome{First: answer == "u1", Err: watchdog.ErrGivenUp}
	case "c":
		return watchdog.Outcome{Err: watchdog.ErrChanged}
	case "b":
		return watchdog.Outcome{Err: watchdog.ErrBusy}
	case "n":
		return watchdog.Outcome{Err: watchdog.ErrGone}
	case "x":
		return watchdog.Outcome{Err: fmt.Errorf("rediswatchdog: act: %w", errRow)}
	}
	if granted, ok := strings.CutPrefix(answer, "g"); ok {
		claim, attempt, _ := strings.Cut(granted, " ")
		c, err1 := strconv.ParseUint(claim, 10, 64)
		n, err2 := strconv.Atoi(attempt)
		if err1 == nil && err2 == nil {
			return watchdog.Outcome{Claim: c, Attempt: n}
		}
	}
	return watchdog.Outcome{Err: fmt.Errorf("rediswatchdog: act: %w", errReply)}
}

func readPage(reply []string) (page watchdog.Page, err error) {
	if len(reply)%2 != 1 {
		return page, errReply
	}
	now := &scanner{s: reply[0] + " "}
	page.Now = now.time()
	if now.bad {
		return page, errReply
	}
	for i := 1; i < len(reply); i += 2 {
		e := watchdog.Entry{Name: reply[i]}
		if !readRow(&e.Record, reply[i+1]) {
			return page, errRow
		}
		page.Records = append(page.Records, e)
	}
	return page, nil
}

// readRow reads a row; lib.lua says what it holds.
func readRow(r *watchdog.Record, row string) bool {
	s := &scanner{s: row}
	if s.next() != "1" {
		return false
	}
	r.Token, r.Seq, r.Interval, r.Said = s.number(), s.number(), s.duration(), watchdog.State(s.number())
	r.Position, r.Pending, r.Busy, r.Left = s.number(), s.number(), s.number() == 1, s.number() == 1
	r.JoinedAt, r.StateAt, r.BeatAt = s.time(), s.time(), s.time()
	r.Stalled, r.Quiet, r.Running = s.duration(), s.duration(), s.duration()
	r.Attempts, r.GivenUp, r.Claim, r.NextAt, r.ActedAt = int(s.number()), s.number() == 1, s.number(), s.time(), s.time()
	for range 7 { // turns, handler, nonce, past, take, answer, settled
		s.next()
	}
	r.Detail = s.s
	return !s.bad
}

// A scanner takes values that are followed by a space. The first that is none spoils
// it.
type scanner struct {
	s   string
	bad bool
}

func (s *scanner) next() string {
	value, rest, found := strings.Cut(s.s, " ")
	s.s, s.bad = rest, s.bad || !found
	return value
}

func (s *scanner) number() uint64 {
	n, err := strconv.ParseUint(s.next(), 10, 64)
	s.bad = s.bad || err != nil
	return n
}

func (s *scanner) duration() time.Duration { return time.Duration(s.number()) * time.Microsecond }

func (s *scanner) time() time.Time {
	n := s.number()
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(n)).UTC()
}
