package inbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/pawl-go/pawl/internal/seal"
)

// A Key seals bodies: 32 random bytes, and the name by which sealed bodies refer to
// them, which is stored in clear: 1 to 64 bytes of [A-Za-z0-9._-]. It prints as
// [secret].
type Key struct {
	ID     string
	Secret []byte
}

// String hides the key.
func (Key) String() string { return seal.Redacted }

// GoString hides the key.
func (Key) GoString() string { return seal.Redacted }

// LogValue hides the key.
func (Key) LogValue() slog.Value { return slog.StringValue(seal.Redacted) }

// MarshalText hides the key.
func (Key) MarshalText() ([]byte, error) { return []byte(seal.Redacted), nil }

// Errors of a body that is stored and cannot be had. The record is kept, and
// nothing is lost: the next attempt may be able to.
var (
	// ErrSealed says that a body cannot be opened: its key is not in Options.Keys, or
	// it was changed, or it belongs to another event.
	ErrSealed = errors.New("inbox: the body cannot be opened")
	// ErrOutside says that a body which is kept outside of the store was not had from
	// Options.Payloads.
	ErrOutside = errors.New("inbox: the body that is kept outside cannot be had")
)

// The kinds to which sealed texts are bound, beside the ID of their event.
const (
	sealPayload = "inbox payload"
	sealContext = "inbox context"
	sealDigest  = "inbox digest"
)

// newRing makes the ring of the options' keys; nil if there are none.
func newRing(keys []Key) (*seal.Ring, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	own := make([]seal.Key, len(keys))
	for i, k := range keys {
		own[i] = seal.Key(k)
	}
	ring, err := seal.NewRing(own)
	if err != nil {
		return nil, invalid("keys: %w", err)
	}
	return ring, nil
}

// digest tells payloads apart. With keys it is keyed: nobody who reads the store
// can find out a payload by trying.
func (c *core) digest(payload []byte) [32]byte {
	if c.ring == nil {
		return sha256.Sum256(payload)
	}
	return c.ring.Digest(sealDigest, payload)
}

// arrange makes of an arrival what the store gets: sealed, and its payload replaced
// by a reference if it is to be kept outside. It returns what is to be put there.
func (c *core) arrange(a *Arrival, at int) (outside *parcel) {
	size := len(a.Payload)
	if c.ring != nil {
		a.Payload = c.ring.Seal(sealPayload, a.ID, a.Payload)
		a.Context = c.ring.Seal(sealContext, a.ID, a.Context)
		a.Form |= FormSealed
	}
	if c.opts.Payloads == nil || size <= c.opts.OutsideOver {
		return nil
	}
	p := &parcel{at: at, id: a.ID, ref: reference(a.ID, a.Digest), body: a.Payload}
	a.Payload = []byte(p.ref)
	a.Form |= FormOutside
	return p
}

// reference names a body outside: of the event, and of its content.
func reference(id string, digest [32]byte) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:]) + "-" + hex.EncodeToString(digest[:])
}

// open replaces what the store keeps of a body by the body. When it cannot be had,
// the record has none, and its Form says why.
func (c *core) open(ctx context.Context, r *Record) error {
	if r.Form&^FormRedacted == 0 {
		return nil
	}
	payload, context, err := c.opened(ctx, r)
	if err != nil {
		r.Payload, r.Context = nil, nil
		return err
	}
	r.Payload, r.Context, r.Form = payload, context, r.Form&FormRedacted
	return nil
}

func (c *core) opened(ctx context.Context, r *Record) (payload, around []byte, err error) {
	payload, around = r.Payload, r.Context
	if r.Form&FormOutside != 0 {
		if payload, err = c.fetch(ctx, string(payload)); err != nil {
			return nil, nil, fmt.Errorf("%w: event %s: %w", ErrOutside, short(r.ID), err)
		}
	}
	if r.Form&FormSealed == 0 {
		return payload, around, nil
	}
	if c.ring == nil {
		return nil, nil, fmt.Errorf("%w: event %s: it is sealed, and Options.Keys is empty", ErrSealed, short(r.ID))
	}
	if payload, err = c.ring.Open(sealPayload, r.ID, payload); err == nil {
		around, err = c.ring.Open(sealContext, r.ID, around)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: event %s: %w", ErrSealed, short(r.ID), err)
	}
	return payload, around, nil
}

// openAll opens records that were listed. One that cannot be opened does not keep
// the others from the caller; that ctx ended does.
func (c *core) openAll(ctx context.Context, records []Record) error {
	errs := make([]error, len(records))
	sideBySide(len(records), func(i int) {
		if ctx.Err() == nil {
			errs[i] = c.open(ctx, &records[i])
		}
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil }); len(failed) > 0 {
		c.counts.unopened.Add(uint64(len(failed)))
		c.warn(ctx, "the bodies of records cannot be had; they are listed without", "records", len(failed), "first", failed[0])
	}
	return nil
}
