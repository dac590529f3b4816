package pginbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/pgcall"
)

// maxBytes is how many bytes of bodies one call carries, unless a single arrival
// is larger: a message to the server is limited to 1 GB. maxArrivals is how many
// arrivals.
const (
	maxBytes    = 64 << 20
	maxArrivals = 10_000
)

// accept stores arrivals in one transaction, in as few calls as it can.
func (s *Store) accept(ctx context.Context, r pgcall.Route, p inbox.Params, arrivals []inbox.Arrival) ([]inbox.Answer, error) {
	if len(arrivals) == 0 {
		return nil, nil
	}
	answers := make([]inbox.Answer, len(arrivals))
	if n := chunk(arrivals); n == len(arrivals) {
		err := s.acceptChunk(ctx, r, p, arrivals, answers)
		if !r.Bound && pgcall.HasCode(err, pgcall.Locked) { // also an event that was removed meanwhile
			err = s.acceptChunk(ctx, r, p, arrivals, answers)
		}
		if err != nil {
			return nil, err
		}
		return answers, nil
	}
	all := func(r pgcall.Route) error {
		for from := 0; from < len(arrivals); {
			to := from + chunk(arrivals[from:])
			if err := s.acceptChunk(ctx, r, p, arrivals[from:to], answers[from:to]); err != nil {
				return err
			}
			from = to
		}
		return nil
	}
	var err error
	if r.Bound {
		err = all(r)
	} else {
		err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error { return all(within(tx)) })
	}
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// chunk returns how many arrivals go into the next call.
func chunk(arrivals []inbox.Arrival) int {
	bytes := 0
	for i := range arrivals {
		a := &arrivals[i]
		if bytes += len(a.Payload) + len(a.Context); i > 0 && (bytes > maxBytes || i >= maxArrivals) {
			return i
		}
	}
	return len(arrivals)
}

// The flags of inbox_accept.
const (
	flagFingerprinted = 1 << iota
	flagUnknown
	flagRaw
	formShift  = iota
	nanosShift = formShift + 3
)

func (s *Store) acceptChunk(ctx context.Context, r pgcall.Route, p inbox.Params, arrivals []inbox.Arrival, answers []inbox.Answer) error {
	n := len(arrivals)
	sorted := make([]int, n)
	places := make([]int32, n) // by place in arrivals
	total := int32(0)
	for i := range arrivals {
		sorted[i] = i
		places[i] = total + 1
		total += int32(max(len(arrivals[i].Streams), 1))
	}
	slices.SortFunc(sorted, func(a, b int) int {
		return cmp.Or(strings.Compare(arrivals[a].ID, arrivals[b].ID), a-b)
	})
	c := newArrivals(n)
	for k, i := range sorted {
		c.add(k, &arrivals[i], places[i])
	}
	fresh, read := -1, 0
	err := r.Call(ctx, func(rows pgx.Rows) error {
		var k, answer int
		if err := rows.Scan(&k, &answer); err != nil {
			return err
		}
		if k == 0 {
			fresh = answer
			return nil
		}
		if k > n {
			return fmt.Errorf("an answer to arrival %d of %d", k, n)
		}
		answers[sorted[k-1]] = inbox.Answer(answer)
		read++
		return nil
	}, s.sql.accept, p.Keep.Microseconds(), total, c.places, c.ids, c.streams, c.keys, c.digests, c.providers, c.types, c.versions,
		c.accounts, c.phones, c.messages, c.externals, c.traces, c.occurred, c.flags, c.payloads, c.contexts, c.reasons,
		c.moreAt, c.moreRanks, c.morePlaces, c.moreStreams)
	if err != nil {
		return err
	}
	if fresh == n && read == 0 {
		for i := range arrivals {
			answers[i] = inbox.Accepted
			if arrivals[i].Raw {
				answers[i] = inbox.Quarantined
			}
		}
		return nil
	}
	if read != n {
		return fmt.Errorf("%d answers to %d arrivals", read, n)
	}
	return nil
}

// columns are arrivals as inbox_accept takes them. What nobody uses is nil.
type columns struct {
	n                                                                int
	places                                                           []int32
	ids, streams, keys, providers, types, versions, accounts, phones []string
	messages, externals, traces, reasons                             []string
	digests, payloads, contexts                                      [][]byte
	occurred                                                         []*int64
	flags                                                            []int32
	moreAt, morePlaces                                               []int32
	moreRanks                                                        []int16
	moreStreams                                                      []string
}

func newArrivals(n int) *columns {
	text := func() []string { return make([]string, n) }
	return &columns{
		n: n, places: make([]int32, n), ids: text(), streams: text(), keys: text(), providers: text(), types: text(), versions: text(),
		accounts: text(), phones: text(), messages: text(), externals: text(), digests: make([][]byte, n), payloads: make([][]byte, n),
		flags: make([]int32, n),
	}
}

func (c *columns) add(k int, a *inbox.Arrival, place int32) {
	c.places[k], c.ids[k], c.keys[k], c.digests[k], c.payloads[k] = place, a.ID, a.Key, a.Digest[:], a.Payload
	c.providers[k], c.types[k], c.versions[k] = a.Provider, a.Type, a.Version
	c.accounts[k], c.phones[k], c.messages[k], c.externals[k] = a.Account, a.Phone, a.MessageID, a.ExternalID
	flags := int32(a.Form) << formShift
	if a.Fingerprinted {
		flags |= flagFingerprinted
	}
	if a.Unknown {
		flags |= flagUnknown
	}
	if a.Raw {
		flags |= flagRaw
	}
	if a.Context != nil {
		if c.contexts == nil {
			c.contexts = make([][]byte, c.n)
		}
		c.contexts[k] = a.Context
	}
	if !a.Occurred.IsZero() {
		if c.occurred == nil {
			c.occurred = make([]*int64, c.n)
		}
		at := a.Occurred.UnixMicro()
		c.occurred[k] = &at
		flags |= int32(a.Occurred.Nanosecond()%1000) << nanosShift
	}
	c.flags[k] = flags
	set(&c.traces, c.n, k, a.Trace)
	set(&c.reasons, c.n, k, a.Reason)
	if len(a.Streams) == 0 {
		return
	}
	c.streams[k] = a.Streams[0]
	for i, stream := range a.Streams[1:] {
		c.moreAt = append(c.moreAt, int32(k+1))
		c.moreRanks = append(c.moreRanks, int16(i+1))
		c.morePlaces = append(c.morePlaces, place+int32(i+1))
		c.moreStreams = append(c.moreStreams, stream)
	}
}
