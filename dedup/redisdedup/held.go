package redisdedup

import (
	"context"
	_ "embed"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/internal/redispart"
)

//go:embed held.lua
var heldText string

var heldScript = redispart.NewScript(heldText)

// Held implements [dedup.Store]. It reads the index of each partition and looks
// at the rows that it names, so it costs two round trips for every few hundred
// IDs that are held or claimed under Hold. A claim whose Err is set stands for a
// row that cannot be read.
//
// It is not one atomic step: an ID that is settled, or lapses, while Held runs may
// or may not be listed. Each claim that is listed was Unknown when it was read.
func (s *Store) Held(ctx context.Context, scope, after string, n int) ([]dedup.Claim, error) {
	lists := make([]heldList, s.parts.Len())
	for k := range lists {
		tag := s.parts.Tag(k)
		lists[k] = heldList{index: tag + "!" + scope, prefix: tag + ":" + scope + ":", more: true}
		lists[k].last = lists[k].prefix + after
	}
	var all []dedup.Claim
	for {
		var open []*heldList
		for k := range lists {
			if l := &lists[k]; l.more && len(l.claims) < n {
				open = append(open, l)
			}
		}
		if len(open) == 0 {
			break
		}
		if err := s.nextPages(ctx, open, n); err != nil {
			return nil, failed(ctx, "held", err)
		}
	}
	for k := range lists {
		all = append(all, lists[k].claims...)
	}
	slices.SortFunc(all, func(a, b dedup.Claim) int { return strings.Compare(a.ID, b.ID) })
	return all[:min(n, len(all))], nil
}

// A heldList is what is known of the index of one partition so far.
type heldList struct {
	index  string
	prefix string // of the rows' keys
	last   string // the last key that was looked at
	more   bool   // there may be keys behind it
	claims []dedup.Claim
}

// nextPages looks at the next keys of each list.
func (s *Store) nextPages(ctx context.Context, lists []*heldList, n int) error {
	page := int64(min(max(n, 64), 512))
	pipe := s.client.Pipeline()
	pages := make([]*redis.StringSliceCmd, len(lists))
	for i, l := range lists {
		pages[i] = pipe.ZRangeByLex(ctx, l.index, &redis.ZRangeBy{Min: "(" + l.last, Max: "+", Count: page})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	var calls []redispart.Call
	var called []*heldList
	for i, l := range lists {
		keys := pages[i].Val()
		l.more = int64(len(keys)) == page
		if len(keys) > 0 {
			l.last = keys[len(keys)-1]
			calls = append(calls, redispart.Call{Keys: append(keys, l.index)})
			called = append(called, l)
		}
	}
	if err := s.parts.Run(ctx, heldScript, calls); err != nil {
		return err
	}
	for i := range calls {
		if err := calls[i].Err; err != nil {
			return err
		}
		keys := calls[i].Keys
		if err := called[i].read(keys[:len(keys)-1], calls[i].Reply); err != nil {
			return err
		}
	}
	return nil
}

// read adds the answers of held.lua for these keys.
func (l *heldList) read(keys, reply []string) error {
	counted := decimal(int64(len(keys) - len(reply)/2)) // the others are not on hold
	return answers(reply, counted, len(keys), func(place int, answer string) error {
		c := dedup.Claim{ID: strings.TrimPrefix(keys[place], l.prefix)}
		if err := readClaim(&c, answer); err != nil {
			return err
		}
		l.claims = append(l.claims, c)
		return nil
	})
}
