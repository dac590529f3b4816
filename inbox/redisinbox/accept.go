package redisinbox

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

//go:embed rows.lua
var rowsText string

//go:embed accept.lua
var acceptText string

var (
	rowsScript   = script(rowsText)
	acceptScript = script(acceptText)
)

// Accept implements [inbox.Store]. It is two round trips for up to 512 arrivals,
// each with a script call for every partition that it touches: the first notes in
// which partition the events are, the second stores them. The package comment says
// what is left when a process dies between them.
func (s *Store) Accept(ctx context.Context, p inbox.Params, arrivals []inbox.Arrival) ([]inbox.Answer, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed(ctx, "accept", err)
	}
	answers := make([]inbox.Answer, len(arrivals))
	for from := 0; from < len(arrivals); {
		to := chunk(arrivals, from)
		b := acceptance{store: s, keep: micros(p.Keep), arrivals: arrivals[from:to], answers: answers[from:to], rows: make([]idRow, to-from)}
		if err := b.accept(ctx); err != nil {
			return nil, failed(ctx, "accept", err)
		}
		from = to
	}
	return answers, nil
}

// chunk says where a round trip ends that begins with an arrival.
func chunk(arrivals []inbox.Arrival, from int) int {
	size := 0
	for i := from; i < len(arrivals); i++ {
		size += (len(arrivals[i].Payload) + len(arrivals[i].Context)) * max(1, len(arrivals[i].Streams))
		if i > from && size > maxBytes || i == from+maxBatch {
			return i
		}
	}
	return len(arrivals)
}

// An acceptance is what is stored in one round trip.
type acceptance struct {
	store    *Store
	keep     string
	arrivals []inbox.Arrival
	answers  []inbox.Answer
	rows     []idRow
}

// An idRow says in which partition an event is, or will be.
type idRow struct {
	nonce string
	part  int
	void  string // the nonce of the row that is to be replaced
	floor uint64 // the lowest number that the record may have
}

const (
	// nonceSize is the length of a nonce of 16 bytes in base64.
	nonceSize = 22

	// rivals is how often an acceptance begins anew because its row was void: once
	// for each process that has died, or stores the same ID under another key.
	rivals = 16

	// pause is the longest time between the two round trips. A sweep takes a row that
	// leads nowhere for abandoned when it is older than abandoned, which is longer.
	pause     = 5 * time.Minute
	abandoned = 10 * time.Minute
)

func (b *acceptance) accept(ctx context.Context) error {
	left := upTo(len(b.arrivals))
	for range rivals {
		started := time.Now()
		if err := b.reserve(ctx, left); err != nil {
			return err
		}
		if time.Since(started) > pause {
			return errSlow
		}
		var err error
		if left, err = b.put(ctx, left); err != nil || len(left) == 0 {
			return err
		}
	}
	return errRivals
}

var (
	errSlow   = errors.New("too much time has passed between the two steps; nothing was stored by the second")
	errRivals = errors.New("the same ID is being stored under other ordering keys; some events are not stored")
)

// reserve writes down, in the partitions of their IDs, where the events of these
// arrivals will be, or learns where they are.
func (b *acceptance) reserve(ctx context.Context, items []int) error {
	s := b.store
	var now int64
	err := s.run(ctx, rowsScript, nil, items, func(i int) int { return s.parts.Of(b.arrivals[i].ID) },
		func(args []any, i int) []any {
			return append(args, "r", b.arrivals[i].ID, newNonce(), place(s.parts.Of(b.arrivals[i].Key))+b.rows[i].void)
		},
		func(_ int, items []int, reply []string) error {
			if len(reply) != 1+len(items) {
				return errReply
			}
			at, err := strconv.ParseInt(reply[0], 10, 64)
			if err != nil {
				return errReply
			}
			now = max(now, at)
			for n, i := range items {
				if err := b.rows[i].read(reply[1+n], len(s.keys)); err != nil {
					return err
				}
			}
			return nil
		})
	if err != nil {
		return err
	}
	b.number(uint64(now), items)
	return nil
}

func (r *idRow) read(reply string, parts int) error {
	if reply == "x" {
		return errRow
	}
	if len(reply) != nonceSize+3 {
		return errReply
	}
	part, err := strconv.Atoi(reply[nonceSize:])
	if err != nil || part < 0 || part >= parts {
		return errRow
	}
	r.nonce, r.part = reply[:nonceSize], part
	return nil
}

// number gives each arrival the lowest number that its first record may have: in
// the order of the batch, and above all that this store has seen. Arrivals that are
// sent again keep theirs, so that they come before those that followed them.
func (b *acceptance) number(now uint64, items []int) {
	if b.rows[items[0]].floor > 0 {
		return
	}
	n := uint64(0)
	for _, i := range items {
		n += uint64(max(1, len(b.arrivals[i].Streams)))
	}
	first := b.store.ahead(now, n)
	for _, i := range items {
		b.rows[i].floor = first
		first += uint64(max(1, len(b.arrivals[i].Streams)))
	}
}

// ahead takes n numbers that are above all that the store has seen.
func (s *Store) ahead(now, n uint64) (first uint64) {
	for {
		seen := s.seen.Load()
		if first = max(seen+1, now); s.seen.CompareAndSwap(seen, first+n-1) {
			return first
		}
	}
}

func (s *Store) saw(x uint64) {
	for seen := s.seen.Load(); x > seen; seen = s.seen.Load() {
		if s.seen.CompareAndSwap(seen, x) {
			return
		}
	}
}

// put stores arrivals where their rows say, and returns those for which a new row is
// needed, and what came behind them.
func (b *acceptance) put(ctx context.Context, items []int) (left []int, err error) {
	s := b.store
	err = s.run(ctx, acceptScript, []any{b.keep}, items, func(i int) int { return b.rows[i].part },
		func(args []any, i int) []any {
			a, row := &b.arrivals[i], &b.rows[i]
			meta := string([]byte{flag(s.parts.Of(a.Key) == row.part), flag(a.Raw), '0' + byte(a.Form)}) + digits(row.floor) + base.EncodeToString(a.Digest[:])
			var failed []byte
			if a.Reason != "" {
				failed = failedRow(a.Reason, nil)
			}
			return append(args, a.ID, row.nonce, meta, strings.Join(a.Streams, " "), a.Key, fieldsRow(&a.Event), bodyRow(&a.Event), failed)
		},
		func(_ int, items []int, reply []string) error {
			if len(reply) != len(items) {
				return errReply
			}
			for n, i := range items {
				again, err := b.answer(i, reply[n])
				if err != nil {
					return err
				}
				if again {
					left = append(left, i)
				}
			}
			return nil
		})
	slices.Sort(left) // the order of the batch
	return left, err
}

// answer reads what became of an arrival; again says that it is to be sent again.
func (b *acceptance) answer(i int, reply string) (again bool, err error) {
	if reply == "" {
		return false, errReply
	}
	x, err := strconv.ParseUint(reply[1:], 10, 64)
	if err != nil {
		return false, errReply
	}
	b.store.saw(x)
	b.rows[i].void = ""
	switch reply[0] {
	case 'a':
		b.answers[i] = inbox.Accepted
	case 'd':
		b.answers[i] = inbox.Duplicate
	case 'c':
		b.answers[i] = inbox.Conflict
	case 'q':
		b.answers[i] = inbox.Quarantined
	case 'n':
		b.rows[i].void = b.rows[i].nonce
		return true, nil
	case 'w':
		return true, nil
	case 'x':
		return false, errRow
	default:
		return false, errReply
	}
	return false, nil
}

func place(part int) string { return fmt.Sprintf("%03d", part) }

func newNonce() string {
	var n [16]byte
	rand.Read(n[:])
	return base.EncodeToString(n[:])
}
