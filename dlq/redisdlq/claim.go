package redisdlq

import (
	"context"
	_ "embed"
	"time"

	"github.com/pawl-go/pawl/dlq"
)

//go:embed claim.lua
var claimText string

var claimScript = script(claimText)

// Claim implements [dlq.Store]. It takes at most 512 lanes in one call; when more were
// asked for, the rest can be claimed at once.
func (s *Store) Claim(ctx context.Context, a dlq.Ask) (dlq.Claimed, error) {
	r, err := s.call(ctx, claimScript, a.Stream, hexadecimal(a.Nonce), a.Stream, span(a.Lease), decimal(int64(min(a.N, maxBatch))),
		decimal(int64(min(a.Bytes, maxNumber))))
	if err != nil {
		return dlq.Claimed{}, failed(ctx, "claim", err)
	}
	c, err := readClaimed(r, &a)
	if err != nil {
		return dlq.Claimed{}, failed(ctx, "claim", err)
	}
	return c, nil
}

func readClaimed(r *reader, a *dlq.Ask) (c dlq.Claimed, err error) {
	c.Next = micros(r.int())
	size := 0
	for r.more() {
		w := words("1 "+r.text(), 3)
		_ = w.text()
		k := dlq.Claim{Token: w.uint(), Left: micros(w.int())}
		if w.bad {
			return dlq.Claimed{}, errReply
		}
		if k.Record, err = r.letter(a.Stream); err != nil {
			return dlq.Claimed{}, err
		}
		k.Lane = k.Record.Lane()
		size += len(k.Record.Body) + len(k.Record.Original)
		c.Claims = append(c.Claims, k)
	}
	if r.bad {
		return dlq.Claimed{}, errReply
	}
	if len(c.Claims) == maxBatch && maxBatch < a.N && size < a.Bytes {
		c.Next = time.Microsecond
	}
	return c, nil
}

// micros is a span between two of the server's times. A server whose clock went back
// can make it negative.
func micros(n int64) time.Duration { return time.Duration(max(n, 0)) * time.Microsecond }
