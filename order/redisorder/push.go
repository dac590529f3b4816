package redisorder

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pawl-go/pawl/internal/redispart"
	"github.com/pawl-go/pawl/order"
)

//go:embed push.lua
var pushText string

var pushScript = script(pushText)

// What goes into one pipeline. Larger batches take several, one after another, so
// that no script keeps the server from others for longer than a few milliseconds.
const (
	maxBatch = 1024
	maxBytes = 8 << 20
)

// Push implements [order.Store]. It is one round trip for up to 1024 arrivals, or
// two if any of them has an ID, and a few more in rare cases. Where only a part is
// answered, the answers of the rest carry the error, and the rest of a larger batch
// is not sent.
func (s *Store) Push(ctx context.Context, p order.Params, arrivals []order.Arrival) ([]order.Answer, error) {
	answers := make([]order.Answer, len(arrivals))
	for i := range arrivals {
		answers[i].Key, answers[i].Position = arrivals[i].Key, arrivals[i].Position
	}
	for from := 0; from < len(arrivals); {
		to := from + partOf(arrivals[from:])
		if err := s.push(ctx, p, arrivals[from:to], answers[from:to]); err != nil {
			for i := range answers[from:] {
				answers[from+i].Err = err
			}
			break
		}
		from = to
	}
	if len(answers) > 0 && !slices.ContainsFunc(answers, func(a order.Answer) bool { return a.Err == nil }) {
		return nil, answers[0].Err
	}
	return answers, nil
}

// partOf returns how many arrivals go into one pipeline. An ID stands in it for one
// key only, so that the first of two arrivals keeps it.
func partOf(arrivals []order.Arrival) int {
	var keys map[string]string
	size := 0
	for i := range arrivals {
		a := &arrivals[i]
		if size += len(a.Payload) + len(a.Context); i > 0 && (i == maxBatch || size > maxBytes) {
			return i
		}
		if a.ID == "" {
			continue
		}
		if key, found := keys[a.ID]; found && key != a.Key {
			return i
		}
		if keys == nil {
			keys = make(map[string]string)
		}
		keys[a.ID] = a.Key
	}
	return len(arrivals)
}

// errFenced is what an arrival carries between two rounds, and after the last one.
var errFenced = errors.New("other processes push messages with the same ID to other keys; push again")

// push sends one pipeline's worth of arrivals. An error means that none has an
// answer.
func (s *Store) push(ctx context.Context, p order.Params, arrivals []order.Arrival, answers []order.Answer) error {
	b := &pushBatch{store: s, p: p, arrivals: arrivals, answers: answers}
	places := make([]int, len(arrivals))
	for i := range places {
		places[i] = i
	}
	for range 8 {
		rest, err := b.claimIDs(ctx, places)
		if err == nil {
			err = b.send(ctx, rest)
		}
		if err != nil {
			err = failed(ctx, "push", err)
			if len(places) == len(arrivals) {
				return err
			}
			for _, i := range places {
				answers[i].Err = err
			}
			return nil
		}
		places = places[:0:0]
		for _, i := range rest {
			if errors.Is(answers[i].Err, errFenced) {
				places = append(places, i)
			}
		}
		if len(places) == 0 {
			b.dropIDs(ctx)
			return nil
		}
	}
	for _, i := range places {
		answers[i].Err = failed(ctx, "push", errFenced)
	}
	return nil
}

// A pushBatch is one pipeline's worth of arrivals on their way.
type pushBatch struct {
	store    *Store
	p        order.Params
	arrivals []order.Arrival
	answers  []order.Answer
	ids      []idClaim // one for each arrival; nil if none has an ID
}

// A group is the arrivals of one key.
type group struct {
	key    string
	places []int // in the order of the batch
	sorted []int // by number, if that is another order and may be used
}

// send pushes the arrivals at these places. An error means that none has an answer.
func (b *pushBatch) send(ctx context.Context, places []int) error {
	if len(places) == 0 {
		return nil
	}
	groups := b.group(places)
	again, err := b.sendGroups(ctx, groups, true)
	if err != nil {
		return err
	}
	if len(again) == 0 {
		return nil
	}
	_, err = b.sendGroups(ctx, again, false)
	for _, g := range again {
		for _, i := range g.places {
			if err != nil {
				b.answers[i].Err = failed(ctx, "push", err)
			}
		}
	}
	return nil
}

// group splits the places by key. Numbers that came unordered would be taken as
// gaps that close again one by one, so a group is sorted where no answer can
// depend on the order, as far as can be known here; push.lua knows the rest.
func (b *pushBatch) group(places []int) []group {
	var groups []group
	index := make(map[string]int)
	for _, i := range places {
		key := b.arrivals[i].Key
		at := len(groups) - 1
		if at < 0 || groups[at].key != key {
			var known bool
			if at, known = index[key]; !known {
				at = len(groups)
				index[key] = at
				groups = append(groups, group{key: key, places: make([]int, 0, len(places)-len(groups))})
			}
		}
		groups[at].places = append(groups[at].places, i)
	}
	for g := range groups {
		groups[g].sorted = b.sorted(groups[g].places)
	}
	return groups
}

func (b *pushBatch) sorted(places []int) []int {
	ascending := true
	first := &b.arrivals[places[0]]
	last := uint64(0)
	for _, i := range places {
		a := &b.arrivals[i]
		if a.Assign || a.Position.Epoch != first.Position.Epoch {
			return nil
		}
		ascending = ascending && a.Position.Number >= last
		last = a.Position.Number
	}
	if ascending {
		return nil
	}
	sorted := slices.Clone(places)
	slices.SortStableFunc(sorted, func(i, j int) int {
		return b.arrivals[i].Position.Compare(b.arrivals[j].Position)
	})
	return sorted
}

// sendGroups pushes groups and returns those that have to be sent in their own
// order.
func (b *pushBatch) sendGroups(ctx context.Context, groups []group, sort bool) (again []group, err error) {
	s := b.store
	_, parts := s.parts.Split(len(groups), func(i int) string { return groups[i].key })
	keys := s.keys(b.p.Scope)
	header := []any{number(b.p.Start), decimal(int64(b.p.Window)), decimal(int64(b.p.MaxBuffered)),
		number(min(b.p.MaxAhead, order.MaxNumber)), string(flag(b.p.Abandon)), string(flag(b.p.Late)), decimal(micros(b.p.GapLook))}
	var calls []redispart.Call
	var called [][]int // which groups
	for part, list := range parts {
		if len(list) == 0 {
			continue
		}
		args := append(make([]any, 0, len(header)+3*len(list)+2*len(b.arrivals)), header...)
		for _, g := range list {
			g := &groups[g]
			how := "-"
			if !sort {
				g.sorted = nil
			} else if g.sorted != nil {
				how = "s"
			}
			args = append(args, g.key, len(g.places), how)
			args = b.encode(args, g.order())
		}
		calls = append(calls, redispart.Call{Keys: keys[part], Args: args})
		called = append(called, list)
	}
	if err := s.parts.Run(ctx, pushScript, calls); err != nil {
		return nil, err
	}
	for c := range calls {
		err := calls[c].Err
		if err == nil {
			extras := calls[c].Reply[min(len(called[c]), len(calls[c].Reply)):]
			for n, g := range called[c] {
				switch {
				case n >= len(calls[c].Reply):
					err = errReply
				case calls[c].Reply[n] == "!" && groups[g].sorted != nil:
					again = append(again, groups[g])
				case err == nil:
					extras, err = b.read(groups[g].order(), calls[c].Reply[n], extras)
				}
			}
		}
		if err != nil {
			err = failed(ctx, "push", err)
			for _, g := range called[c] {
				for _, i := range groups[g].places {
					b.answers[i].Err = err
				}
			}
		}
	}
	return again, nil
}

func (g *group) order() []int {
	if g.sorted != nil {
		return g.sorted
	}
	return g.places
}

// encode appends the two values that push.lua takes for each arrival. They share
// one string, for the sake of allocations.
func (b *pushBatch) encode(args []any, places []int) []any {
	size := 0
	for _, i := range places {
		a := &b.arrivals[i]
		size += 38 + 1 + 16 + 16 + len(a.ID) + 4 + len(a.Context) + len(a.Payload)
	}
	var text strings.Builder
	text.Grow(size)
	rows := make([]string, 2*len(places))
	var space [40]byte
	for n, i := range places {
		a := &b.arrivals[i]
		from := text.Len()
		text.Write(digits(digits(space[:0], a.Position.Epoch, 19), a.Position.Number, 19))
		if a.ID == "" {
			kind := byte('0')
			if n > 0 {
				before := &b.arrivals[places[n-1]]
				if before.Position.Epoch == a.Position.Epoch && before.Position.Number+1 == a.Position.Number && !before.Assign {
					kind = '4'
				}
			}
			text.WriteByte(kind)
			text.Write(a.Digest[:])
		} else {
			id := &b.ids[i]
			text.WriteByte(id.kind)
			text.Write(a.Digest[:])
			text.Write(id.nonce[:])
			text.WriteString(a.ID)
		}
		rows[2*n] = text.String()[from:]
		from = text.Len()
		text.Write(digits(space[:0], uint64(len(a.Context)), 4))
		text.Write(a.Context)
		text.Write(a.Payload)
		rows[2*n+1] = text.String()[from:]
	}
	for i := range rows {
		args = append(args, &rows[i])
	}
	return args
}

// read reads the letters of a group into its answers, and returns the extras that
// are left.
func (b *pushBatch) read(places []int, letters string, extras []string) ([]string, error) {
	if len(letters) != len(places) {
		return nil, errReply
	}
	for n, i := range places {
		a := &b.answers[i]
		a.Err, a.Unverified = nil, false
		switch letters[n] {
		case 'b':
			a.State = order.Buffered
		case 'd':
			a.State = order.Duplicate
		case 'u':
			a.State, a.Unverified = order.Duplicate, true
		case 'c':
			a.State = order.Conflict
		case 'l':
			a.State = order.Late
		case 's':
			a.State = order.StaleEpoch
		case 'f':
			a.State = order.Full
		case 't':
			a.State = order.TooFar
		case 'a', 'A', 'F':
			a.State = assigned[letters[n]]
			if len(extras) == 0 || !readOwner(a, extras[0]) {
				return nil, errReply
			}
			extras = extras[1:]
		case 'n':
			a.Err = errFenced
		case 'x':
			a.Err = fmt.Errorf("redisorder: push: %w", errRow)
		default:
			return nil, errReply
		}
	}
	return extras, nil
}

var assigned = map[byte]order.Arrived{'a': order.Buffered, 'A': order.Duplicate, 'F': order.Full}

// readOwner reads epoch, number and key.
func readOwner(a *order.Answer, s string) bool {
	if len(s) < 38 {
		return false
	}
	var ok bool
	a.Position, ok = readPlace(s[:38])
	a.Key = s[38:]
	return ok
}

// nonces returns n random nonces: one random number that is counted up.
func nonces(n int) [][16]byte {
	list := make([][16]byte, n)
	var first [16]byte
	_, _ = rand.Read(first[:]) // never fails
	for i := range list {
		list[i] = first
		for k, at := uint64(i), 15; k > 0; at-- { // exclusive or is enough to tell them apart
			list[i][at] ^= byte(k)
			k >>= 8
		}
	}
	return list
}
