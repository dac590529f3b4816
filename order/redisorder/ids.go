package redisorder

import (
	"context"
	_ "embed"
	"strings"

	"github.com/pawl-go/pawl/internal/redispart"
	"github.com/pawl-go/pawl/order"
)

// The IDs of a scope are one name space, over all partitions. Which key has an ID
// stands in the partition of the ID, in a row of a nonce and the key; where exactly
// the message is, in the partition of the key. The first is written before the
// message. Whoever finds there a key that has no such message (a process died in
// between, or the message was forgotten) first makes the nonce void in the
// partition of that key, so that a push which is still under way is turned away,
// and then takes the row over. So no ID is ever in two places, and a process that
// dies between any two of these steps leaves nothing that stands in the way.

//go:embed index.lua
var indexText string

//go:embed fence.lua
var fenceText string

var (
	indexScript = redispart.NewScript(indexText)
	fenceScript = redispart.NewScript(fenceText)
)

// An idClaim is what is known of the ID of one arrival.
type idClaim struct {
	kind  byte   // as push.lua has it
	nonce []byte // of the row of the ID
	row   string // the row that may be replaced; empty if there is none
	fresh bool   // this call wrote the row
}

// claimIDs notes for each arrival at these places that has an ID which key has it.
// It returns the places of those that are still to be pushed. An error means that
// none has an answer.
func (b *pushBatch) claimIDs(ctx context.Context, places []int) ([]int, error) {
	var open []int
	for _, i := range places {
		if b.arrivals[i].ID != "" {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return places, nil
	}
	if b.ids == nil {
		b.ids = make([]idClaim, len(b.arrivals))
	}
	for _, i := range open {
		id := &b.ids[i]
		if id.row = ""; id.nonce != nil { // it was turned away
			id.row = string(id.nonce) + b.arrivals[i].Key
		}
		id.kind = '1'
		if b.arrivals[i].Assign {
			id.kind = '2'
		}
	}
	answered := make(map[int]bool)
	for range 8 {
		taken, err := b.takeIDs(ctx, open)
		if err != nil {
			return nil, err
		}
		if open, err = b.fenceOthers(ctx, taken, answered); err != nil {
			return nil, err
		}
		if len(open) == 0 {
			break
		}
	}
	for _, i := range open {
		answered[i] = true
		b.answers[i].Err = failed(ctx, "push", errFenced)
	}
	if len(answered) == 0 {
		return places, nil
	}
	rest := make([]int, 0, len(places))
	for _, i := range places {
		if !answered[i] {
			rest = append(rest, i)
		}
	}
	return rest, nil
}

// takeIDs writes the rows of these IDs, and returns the places of those that
// another key has.
func (b *pushBatch) takeIDs(ctx context.Context, open []int) ([]int, error) {
	fresh := nonces(len(open))
	rows, err := b.store.index(ctx, b.p.Scope, len(open), func(n int) (id, old, new string) {
		a := &b.arrivals[open[n]]
		return a.ID, b.ids[open[n]].row, string(fresh[n][:]) + a.Key
	})
	if err != nil {
		return nil, err
	}
	var taken []int
	for n, i := range open {
		row := rows[n]
		if len(row) <= 16 {
			return nil, errReply
		}
		b.ids[i].row, b.ids[i].nonce = row, []byte(row[:16])
		b.ids[i].fresh = row[:16] == string(fresh[n][:])
		if row[16:] != b.arrivals[i].Key {
			taken = append(taken, i)
		}
	}
	return taken, nil
}

// fenceOthers asks the keys that have these IDs. Where the message is there, a
// message that is to be assigned has its answer, and another goes without its ID.
// It returns the places of the others.
func (b *pushBatch) fenceOthers(ctx context.Context, taken []int, answered map[int]bool) ([]int, error) {
	if len(taken) == 0 {
		return nil, nil
	}
	found, err := b.store.fence(ctx, b.p.Scope, len(taken), func(n int) (id, key, nonce string) {
		i := taken[n]
		return b.arrivals[i].ID, b.ids[i].row[16:], b.ids[i].row[:16]
	})
	if err != nil {
		return nil, err
	}
	var open []int
	for n, i := range taken {
		at := found[n]
		switch {
		case at == "":
			open = append(open, i)
		case b.arrivals[i].Assign:
			if len(at) < 54 || !readOwner(&b.answers[i], at[:38]+at[54:]) {
				return nil, errReply
			}
			b.answers[i].State, b.answers[i].Err = order.Duplicate, nil
			answered[i] = true
		default:
			b.ids[i].kind = '3'
		}
	}
	return open, nil
}

// dropIDs takes the rows back that this call wrote for messages which were then not
// stored. What fails here leaves rows behind that lead nowhere, which is harmless.
func (b *pushBatch) dropIDs(ctx context.Context) {
	var vain []int
	for i := range b.ids {
		if a := &b.answers[i]; b.ids[i].fresh && a.Err == nil && a.State != order.Buffered && b.ids[i].row[16:] == b.arrivals[i].Key {
			vain = append(vain, i)
		}
	}
	if len(vain) == 0 {
		return
	}
	found, err := b.store.fence(ctx, b.p.Scope, len(vain), func(n int) (id, key, nonce string) {
		i := vain[n]
		return b.arrivals[i].ID, b.arrivals[i].Key, b.ids[i].row[:16]
	})
	if err != nil {
		return
	}
	_, _ = b.store.index(ctx, b.p.Scope, len(vain), func(n int) (id, old, new string) {
		i := vain[n]
		if id = b.arrivals[i].ID; found[n] != "" { // another push has stored it meanwhile
			return id, "", ""
		}
		return id, b.ids[i].row, ""
	})
}

// index runs index.lua for n IDs and returns their rows.
func (s *Store) index(ctx context.Context, scope string, n int, item func(n int) (id, old, new string)) ([]string, error) {
	ids := make([][3]string, n)
	for i := range ids {
		ids[i][0], ids[i][1], ids[i][2] = item(i)
	}
	return s.forEach(ctx, scope, indexScript, func(k []string) []string { return k[:1] }, n, func(i int) string { return ids[i][0] },
		func(args []any, i int) []any { return append(args, ids[i][0], ids[i][1], ids[i][2]) })
}

// fence runs fence.lua for n IDs in the partitions of keys and returns where the
// IDs are.
func (s *Store) fence(ctx context.Context, scope string, n int, item func(n int) (id, key, nonce string)) ([]string, error) {
	items := make([][3]string, n)
	for i := range items {
		items[i][0], items[i][1], items[i][2] = item(i)
	}
	return s.forEach(ctx, scope, fenceScript, func(k []string) []string { return []string{k[0], k[4]} }, n, func(i int) string { return items[i][1] },
		func(args []any, i int) []any { return append(args, items[i][0], items[i][2]) })
}

// forEach runs a script that returns one value for each of n items, in the
// partition of each. An error means that not all have an answer.
func (s *Store) forEach(ctx context.Context, scope string, script *redispart.Script, use func(keys []string) []string, n int, name func(i int) string, encode func(args []any, i int) []any) ([]string, error) {
	_, parts := s.parts.Split(n, name)
	keys := s.keys(scope)
	var calls []redispart.Call
	var called [][]int
	for part, list := range parts {
		if len(list) == 0 {
			continue
		}
		var args []any
		for _, i := range list {
			args = encode(args, i)
		}
		calls = append(calls, redispart.Call{Keys: use(keys[part]), Args: args})
		called = append(called, list)
	}
	if err := s.parts.Run(ctx, script, calls); err != nil {
		return nil, err
	}
	values := make([]string, n)
	for c := range calls {
		if calls[c].Err != nil {
			return nil, calls[c].Err
		}
		if len(calls[c].Reply) != len(called[c]) {
			return nil, errReply
		}
		for k, i := range called[c] {
			values[i] = calls[c].Reply[k]
		}
	}
	return values, nil
}

// unindex removes the rows of IDs that were forgotten. What fails here leaves rows
// behind that lead nowhere, which is harmless.
func (s *Store) unindex(ctx context.Context, scope string, gone []string) error {
	if len(gone) == 0 {
		return nil
	}
	_, err := s.index(ctx, scope, len(gone), func(i int) (id, old, new string) {
		if len(gone[i]) > 16 {
			var key string
			id, key, _ = strings.Cut(gone[i][16:], "\x00")
			old = gone[i][:16] + key
		}
		return id, old, ""
	})
	return err
}
