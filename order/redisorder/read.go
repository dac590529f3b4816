package redisorder

import (
	"cmp"
	"context"
	_ "embed"
	"slices"
	"strconv"
	"strings"

	"github.com/pawl-go/pawl/internal/redispart"
	"github.com/pawl-go/pawl/order"
)

//go:embed account.lua
var accountText string

//go:embed find.lua
var findText string

//go:embed list.lua
var listText string

//go:embed totals.lua
var totalsText string

var (
	accountScript = script(accountText)
	findScript    = script(findText)
	listScript    = script(listText)
	totalsScript  = script(totalsText)
)

// Account implements [order.Store].
func (s *Store) Account(ctx context.Context, scope, key string) (order.Account, error) {
	k := s.keys(scope)[s.parts.Of(key)]
	call := []redispart.Call{{Keys: []string{k[0], k[1], k[3]}, Args: []any{key}}}
	if err := s.parts.Run(ctx, accountScript, call); err != nil {
		return order.Account{}, failed(ctx, "account", err)
	}
	a, err := readAccount(key, call[0].Reply)
	if err != nil {
		return order.Account{}, failed(ctx, "account", err)
	}
	return a, nil
}

func readAccount(key string, reply []string) (order.Account, error) {
	a := order.Account{Key: key}
	if len(reply) == 0 {
		return a, nil
	}
	r := &reader{values: reply}
	now, oldest := r.int(), r.int()
	if oldest > 0 {
		a.Oldest = age(now, oldest)
	}
	w := words(r.text(), 22)
	if w.text() != "1" || w.bad {
		return a, errRow
	}
	_ = w.text() // token
	claimed, lease := w.flag(), w.int()
	a.Claimed = claimed && lease > now
	for range 7 { // nonce, upto, first, due, active, highest, waiting
		_ = w.text()
	}
	_, _ = w.int(), w.int() // buffered and held, which the epochs say too
	a.LateWaiting = int(w.int() + w.int())
	n := &a.Arrivals
	for _, count := range []*uint64{&n.Accepted, &n.Duplicate, &n.Conflict, &n.Late, &n.Stale, &n.Full, &n.TooFar} {
		*count = w.uint()
		n.Pushed += *count
	}
	for len(r.values) > 0 {
		l := order.Ledger{Epoch: r.uint()}
		if r.bad || !readLedger(&l, r.text()) {
			return a, errRow
		}
		a.Parked = a.Parked || l.Parked > 0 && len(a.Ledgers) == 0
		a.Ledgers = append(a.Ledgers, l)
	}
	if w.bad || r.bad {
		return a, errRow
	}
	return a, nil
}

func readLedger(l *order.Ledger, row string) bool {
	w := words(row, 28)
	if w.text() != "1" {
		return false
	}
	_ = w.text() // handle
	l.Base, l.Cursor, l.Head, l.Ended = w.uint(), w.uint(), w.uint(), w.flag()
	l.Delivered, l.Void, l.Skipped, l.Late, l.OutOfOrder = w.uint(), w.uint(), w.uint(), w.uint(), w.uint()
	l.Buffered, l.Parked, l.Unordered, l.VoidAhead = w.uint(), w.uint(), w.uint(), w.uint()
	l.Missing = l.Head - l.Cursor - l.Buffered - l.Parked - l.Unordered - l.VoidAhead
	return !w.bad
}

// Find implements [order.Store].
func (s *Store) Find(ctx context.Context, p order.Params, places []order.Place) ([]order.Found, error) {
	found := make([]order.Found, 0, len(places))
	for from := 0; from < len(places); from += maxBatch {
		part, err := s.find(ctx, p, places[from:min(from+maxBatch, len(places))])
		if err != nil {
			return nil, failed(ctx, "find", err)
		}
		found = append(found, part...)
	}
	return found, nil
}

func (s *Store) find(ctx context.Context, p order.Params, places []order.Place) ([]order.Found, error) {
	found := make([]order.Found, len(places))
	owners, err := s.owners(ctx, p.Scope, places)
	if err != nil {
		return nil, err
	}
	of, _ := s.parts.Split(len(places), func(i int) string { return owners[i] })
	keys := s.keys(p.Scope)
	lists := make([][]int, s.parts.Len())
	for i, part := range of {
		if places[i].ID == "" {
			found[i].Key, found[i].Position = places[i].Key, places[i].Position
		} else if owners[i] == "" {
			continue // no key has this ID
		}
		lists[part] = append(lists[part], i)
	}
	var calls []redispart.Call
	var called [][]int
	for part, list := range lists {
		if len(list) == 0 {
			continue
		}
		args := []any{decimal(int64(p.Window))}
		for _, i := range list {
			args = append(args, places[i].ID, owners[i], position(places[i].Position))
		}
		calls = append(calls, redispart.Call{Keys: keys[part][:2], Args: args})
		called = append(called, list)
	}
	if err := s.parts.Run(ctx, findScript, calls); err != nil {
		return nil, err
	}
	for c := range calls {
		if calls[c].Err != nil {
			return nil, calls[c].Err
		}
		r := &reader{values: calls[c].Reply}
		now := r.int()
		for _, i := range called[c] {
			if !readFound(&found[i], now, r) {
				return nil, errReply
			}
		}
	}
	return found, nil
}

// owners returns the key of each place; of an ID, the one that its row names.
func (s *Store) owners(ctx context.Context, scope string, places []order.Place) ([]string, error) {
	owners := make([]string, len(places))
	var ids []int
	for i := range places {
		owners[i] = places[i].Key
		if places[i].ID != "" {
			owners[i] = ""
			ids = append(ids, i)
		}
	}
	if len(ids) == 0 {
		return owners, nil
	}
	rows, err := s.index(ctx, scope, len(ids), func(n int) (id, old, new string) { return places[ids[n]].ID, "", "" })
	if err != nil {
		return nil, err
	}
	for n, i := range ids {
		if len(rows[n]) > 16 {
			owners[i] = rows[n][16:]
		}
	}
	return owners, nil
}

var states = map[string]order.State{
	"?": order.StateUnknown, "d": order.StateDelivered, "v": order.StateVoid, "s": order.StateSkipped, "l": order.StateLate,
	"-": order.StateSettled, "b": order.StateBuffered, "p": order.StateParked, "u": order.StateUnordered, "m": order.StateMissing,
}

func readFound(f *order.Found, now int64, r *reader) bool {
	letter, key, place, row, body, attempts, gap := r.text(), r.text(), r.text(), r.text(), r.text(), r.text(), r.text()
	state, known := states[letter]
	if r.bad || !known {
		return false
	}
	f.State = state
	if key == "" {
		return true
	}
	f.Key = key
	var ok bool
	if f.Position, ok = readPlace(place); !ok {
		return false
	}
	if row != "" {
		f.Message = &order.Message{Key: key, Position: f.Position}
		if !readMessage(f.Message, now, row, body) || !readAttempts(f.Message, attempts) {
			return false
		}
	}
	if len(gap) > 19 {
		from, err := strconv.ParseUint(gap[:19], 10, 64)
		f.Gap = &order.Gap{Key: key, Epoch: f.Position.Epoch, From: from}
		return err == nil && readRecord(f.Gap, now, gap[19:])
	}
	return true
}

// Gaps implements [order.Store]. It asks each partition for q.N of each kind, so it
// is not one atomic step over several keys.
func (s *Store) Gaps(ctx context.Context, scope string, q order.Query) ([]order.Gap, error) {
	letters := "og"
	if q.Unresolved {
		letters = "oq"
	}
	var gaps []order.Gap
	err := s.list(ctx, scope, letters, q, func(now int64, letter, key string, at order.Position, first, _ string) bool {
		g := order.Gap{Key: key, Epoch: at.Epoch, From: at.Number}
		read := readRecord
		if letter == "o" {
			read = readOpen
		}
		ok := read(&g, now, first)
		gaps = append(gaps, g)
		return ok
	})
	if err != nil {
		return nil, failed(ctx, "gaps", err)
	}
	slices.SortFunc(gaps, func(a, b order.Gap) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.From, b.From))
	})
	return gaps[:min(max(q.N, 0), len(gaps))], nil
}

// Parked implements [order.Store]. It asks each partition, so it is not one atomic
// step over several keys.
func (s *Store) Parked(ctx context.Context, scope string, q order.Query) ([]order.Message, error) {
	var parked []order.Message
	err := s.list(ctx, scope, "k", q, func(now int64, _, key string, at order.Position, first, second string) bool {
		m := order.Message{Key: key, Position: at}
		if len(first) < 8 {
			return false
		}
		n, err := strconv.Atoi(first[:8])
		if err != nil || n > len(first)-8 || !readMessage(&m, now, first[8:8+n], second) || !readAttempts(&m, first[8+n:]) {
			return false
		}
		parked = append(parked, m)
		return true
	})
	if err != nil {
		return nil, failed(ctx, "parked", err)
	}
	slices.SortFunc(parked, func(a, b order.Message) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), a.Position.Compare(b.Position))
	})
	return parked[:min(max(q.N, 0), len(parked))], nil
}

// list calls use for the entries of a list behind q.After.
func (s *Store) list(ctx context.Context, scope, letters string, q order.Query, use func(now int64, letter, key string, at order.Position, first, second string) bool) error {
	if q.N <= 0 {
		return nil
	}
	from, start, stop := "[", "", ""
	if q.After != (order.Cursor{}) {
		from, start = "(", q.After.Key+"\x00"+position(q.After.Position)
	}
	keys := s.keys(scope)
	if q.Key != "" {
		if first := q.Key + "\x00"; start < first {
			from, start = "[", first
		}
		stop = q.Key + "\x01"
		if start >= stop {
			return nil
		}
		part := s.parts.Of(q.Key)
		keys = keys[part : part+1]
	}
	calls := make([]redispart.Call, len(keys))
	for i, k := range keys {
		calls[i] = redispart.Call{Keys: k[:2], Args: []any{letters, from, start, stop, q.N}}
	}
	if err := s.parts.Run(ctx, listScript, calls); err != nil {
		return err
	}
	for i := range calls {
		if calls[i].Err != nil {
			return calls[i].Err // a list with holes would look complete
		}
		r := &reader{values: calls[i].Reply}
		now := r.int()
		for len(r.values) > 0 {
			letter, place, first, second := r.text(), r.text(), r.text(), r.text()
			cut := strings.LastIndexByte(place, 0)
			if r.bad || cut < 0 {
				return errReply
			}
			at, ok := readPlace(place[cut+1:])
			if !ok || !use(now, letter, place[:cut], at, first, second) {
				return errRow
			}
		}
	}
	return nil
}

// Totals implements [order.Store]. It asks each partition, so it is not one atomic
// step.
func (s *Store) Totals(ctx context.Context, scope string) (order.Totals, error) {
	keys := s.keys(scope)
	calls := make([]redispart.Call, len(keys))
	for i, k := range keys {
		calls[i].Keys = []string{k[0], k[1], k[3]}
	}
	if err := s.parts.Run(ctx, totalsScript, calls); err != nil {
		return order.Totals{}, failed(ctx, "totals", err)
	}
	var t order.Totals
	for i := range calls {
		if calls[i].Err != nil {
			return order.Totals{}, failed(ctx, "totals", calls[i].Err)
		}
		r := &reader{values: calls[i].Reply}
		now := r.int()
		for _, count := range []*int{&t.Keys, &t.Buffered, &t.Parked, &t.LateWaiting, &t.OpenGaps, &t.Unresolved} {
			*count += int(r.int())
		}
		if oldest := r.int(); oldest > 0 {
			t.Oldest = max(t.Oldest, age(now, oldest))
		}
		if r.bad {
			return order.Totals{}, failed(ctx, "totals", errReply)
		}
	}
	return t, nil
}
