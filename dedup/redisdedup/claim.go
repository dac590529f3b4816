package redisdedup

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/internal/redispart"
)

//go:embed claim.lua
var claimText string

var claimScript = redispart.NewScript(claimText)

// MergeWidth is how many calls a [dedup.Guard] makes of many callers' claims at once,
// and of their settlements: the client is at work on one while the server is on others.
func (s *Store) MergeWidth() int { return 3 }

// Claim implements [dedup.Store]. A batch is one round trip to each server it
// touches, up to 1024 asks; larger ones take more. Where only a part is answered,
// the claims of the rest carry the error, and the rest of a larger batch is not
// sent.
func (s *Store) Claim(ctx context.Context, p dedup.Params, asks []dedup.Ask) ([]dedup.Claim, error) {
	claims := make([]dedup.Claim, len(asks))
	for i := range asks {
		claims[i].ID = asks[i].ID
	}
	for from := 0; from < len(asks); from += maxBatch {
		to := min(from+maxBatch, len(asks))
		if err := s.claim(ctx, p, asks[from:to], claims[from:to]); err != nil {
			for i := range claims[from:] {
				claims[from+i].Err = err
			}
			break
		}
	}
	if i := slices.IndexFunc(claims, func(c dedup.Claim) bool { return c.Err == nil }); i < 0 && len(claims) > 0 {
		return nil, claims[0].Err
	}
	return claims, nil
}

// claim answers one pipeline's worth of asks. An error means that none has an
// answer.
func (s *Store) claim(ctx context.Context, p dedup.Params, asks []dedup.Ask, claims []dedup.Claim) error {
	state, lease, ttl := newState(p)
	id := func(i int) string { return asks[i].ID }
	var b batch
	if state == onHold {
		b = s.newBatch(p.Scope, len(asks), id)
	} else {
		b = s.newRowBatch(ctx, p.Scope, len(asks), id)
	}
	rows := newRows(asks, lease)
	for c, places := range b.places {
		args := make([]any, 2, 2+len(places))
		args[0], args[1] = state, ttl
		for _, i := range places {
			args = append(args, &rows[i])
		}
		b.calls[c].Args = args
	}
	if err := s.run(ctx, "claim", claimScript, b); err != nil {
		return err
	}
	for c := range b.calls {
		call, places := &b.calls[c], b.places[c]
		err := call.Err
		if err == nil {
			err = readClaims(p, claims, places, call.Reply)
		}
		if err != nil {
			err = failed(ctx, "claim", err)
			for _, i := range places {
				claims[i] = dedup.Claim{ID: claims[i].ID, Err: err}
			}
		}
	}
	return nil
}

// onHold is the state of a row that is claimed under Hold.
const onHold = "C"

// newState returns the state that a granted row has, the lease and the time to
// live: a row outlives its lease also where the retention is shorter.
func newState(p dedup.Params) (state, lease, ttl string) {
	switch {
	case p.Complete:
		return "d", "0", decimal(millis(p.Retention))
	case p.OnLapse == dedup.Hold:
		return onHold, decimal(micros(p.Lease)), "0"
	}
	return "c", decimal(micros(p.Lease)), decimal(millis(max(p.Lease, p.Retention)))
}

// newRows returns what each ask's row has behind the token, if the ask is the
// first of its ID. They share one string, for the sake of allocations.
func newRows(asks []dedup.Ask, lease string) []string {
	rows := make([]string, len(asks))
	var text strings.Builder
	text.Grow(len(asks) * (len(asks[0].Nonce) + len("0  1") + len(lease)))
	for i := range asks {
		from := text.Len()
		text.Write(asks[i].Nonce[:])
		text.WriteString("0 ")
		text.WriteString(lease)
		text.WriteString(" 1")
		if asks[i].Fingerprint != (dedup.Request{}).Fingerprint {
			text.WriteByte('f')
			text.Write(asks[i].Fingerprint[:])
		}
		rows[i] = text.String()[from:]
	}
	return rows
}

// readClaims reads the reply of a partition into the claims of these places.
func readClaims(p dedup.Params, claims []dedup.Claim, places []int, reply []string) error {
	if len(reply) == 0 {
		return errReply
	}
	now, err := strconv.ParseUint(reply[0], 10, 64)
	if err != nil {
		return errReply
	}
	for _, i := range places {
		c := &claims[i]
		c.State, c.Token, c.Attempt, c.Left = dedup.Acquired, now, 1, p.Lease
		if p.Complete {
			c.Left = 0
		}
	}
	if len(reply) == 1 {
		return nil // all were new
	}
	return answers(reply[2:], reply[1], len(places), func(place int, answer string) error {
		c := &claims[places[place]]
		*c = dedup.Claim{ID: c.ID}
		return readClaim(c, answer)
	})
}

// readClaim reads an answer of claim.lua.
func readClaim(c *dedup.Claim, answer string) error {
	var token, attempt, left, age int64
	var result string
	var err error
	switch kind, rest := answer[:min(1, len(answer))], answer[min(1, len(answer)):]; kind {
	case "a":
		c.State = dedup.Acquired
		_, err = fields(rest, &token, &attempt, &left)
	case "i":
		c.State = dedup.InFlight
		_, err = fields(rest, &attempt, &left, &age)
	case "d":
		c.State = dedup.Done
		result, err = fields(rest, &attempt, &age)
		c.Result = []byte(result)
	case "c":
		c.State = dedup.Conflict
		_, err = fields(rest, &attempt)
	case "u":
		c.State = dedup.Unknown
		_, err = fields(rest, &token, &attempt, &age)
	case "x":
		c.Err = failed(context.Background(), "claim", errRow)
	default:
		return errReply
	}
	c.Token, c.Attempt = uint64(token), int(attempt)
	c.Left, c.Age = duration(left), duration(age)
	return err
}

// duration reads one that a script has counted. A server whose clock went back
// can make it negative.
func duration(micros int64) time.Duration {
	return time.Duration(max(micros, 0)) * time.Microsecond
}

// micros and millis round up, so that nothing ends early. Leases are counted in
// microseconds; Redis expires keys in milliseconds.
func micros(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// errRow is the answer to an ID whose key holds something else: another program
// writes to the prefix, or a newer version of this package does.
var errRow = errors.New("what is stored under the ID is not a record of this version; nothing was changed")

// errReply is the answer to a reply that no script of this package makes.
var errReply = errors.New("the server's reply is not one of the script's")
