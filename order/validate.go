package order

import (
	"cmp"
	"context"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawl-go/pawl/retry"
)

// What a buffer refuses before it sends anything.

const (
	maxID       = 512       // bytes of a key and of a message ID
	maxContext  = 4 << 10   // bytes of Message.Context
	mostPayload = 16 << 20  // bytes; the limit of Options.MaxPayload
	maxWindow   = 1 << 20   // numbers
	maxHeld     = 1_000_000 // messages of a key
	maxPage     = 1000      // gaps or messages of a list
	maxWorkers  = 1 << 16
	maxBatch    = 1000 // messages of a key at once
	minLease    = time.Millisecond
	day         = 24 * time.Hour
)

// validate says what is wrong with a message. Without a position it is one whose
// position the store assigns.
func (o *Options) validate(m *Message, positioned bool) error {
	if err := validID("key", m.Key); err != nil {
		return err
	}
	return o.validateRest(m, positioned)
}

// validateRest is validate for a message whose key is valid.
func (o *Options) validateRest(m *Message, positioned bool) error {
	if positioned {
		if err := m.Position.validate(); err != nil {
			return err
		}
	}
	if m.ID != "" || !positioned {
		if err := validID("message ID", m.ID); err != nil {
			return err
		}
	}
	switch {
	case len(m.Payload) > o.MaxPayload:
		return invalid("payload of %d bytes at number %d of key %s, at most %d", len(m.Payload), m.Position.Number, short(m.Key), o.MaxPayload)
	case len(m.Context) > maxContext:
		return invalid("context of %d bytes at number %d of key %s, at most %d", len(m.Context), m.Position.Number, short(m.Key), maxContext)
	}
	return nil
}

func (p Position) validate() error {
	if p.Number < 1 || p.Number > MaxNumber || p.Epoch > MaxNumber {
		return invalid("number %d of epoch %d, not 1 to 2^63-1 of epoch 0 to 2^63-1", p.Number, p.Epoch)
	}
	return nil
}

func validID(what, id string) error {
	switch {
	case id == "":
		return invalid("empty %s", what)
	case len(id) > maxID:
		return invalid("%s of %d bytes, at most %d", what, len(id), maxID)
	case strings.IndexByte(id, 0) >= 0:
		return invalid("%s %s has a NUL byte", what, short(id))
	case !utf8.ValidString(id):
		return invalid("%s %s is not valid UTF-8", what, short(id))
	}
	return nil
}

func validText(what, s string) error {
	if len(s) > maxText || !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
		return invalid("%s of %d bytes, not at most %d of UTF-8 without NUL", what, len(s), maxText)
	}
	return nil
}

// withDefaults returns a validated copy.
func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Hooks != nil {
		hooks := *c.Hooks
		c.Hooks = &hooks
	}
	if c.Start != 0 && c.FromFirst {
		return c, invalid("Start %d and FromFirst", c.Start)
	}
	if !c.FromFirst {
		c.Start = cmp.Or(c.Start, 1)
	}
	c.Scope = cmp.Or(c.Scope, "default")
	c.Window = cmp.Or(c.Window, 1024)
	c.MaxBuffered = cmp.Or(c.MaxBuffered, 10_000)
	c.MaxAhead = cmp.Or(c.MaxAhead, 1_000_000)
	c.MaxPayload = cmp.Or(c.MaxPayload, 256<<10)
	c.GapTimeout = cmp.Or(c.GapTimeout, 5*time.Minute)
	c.AlertAfter = cmp.Or(c.AlertAfter, 30*time.Second)
	c.OrphanWait = cmp.Or(c.OrphanWait, 10*time.Second)
	c.KeepBody = max(cmp.Or(c.KeepBody, 7*day), 0)
	c.KeepGaps = cmp.Or(c.KeepGaps, 90*day)
	c.StoreTimeout = cmp.Or(c.StoreTimeout, 5*time.Second)
	c.UnavailableAfter = cmp.Or(c.UnavailableAfter, min(time.Second, c.StoreTimeout))
	if c.ResendBackoff.IsZero() {
		c.ResendBackoff = retry.Exponential(time.Second, time.Minute, retry.NoJitter)
	}
	if err := c.ResendBackoff.Validate(); err != nil {
		return c, invalid("%w", err)
	}
	switch {
	case !validName(c.Scope):
		return c, invalid("scope of %d bytes, not [A-Za-z0-9._-]{1,64}", len(c.Scope))
	case c.Start > MaxNumber:
		return c, invalid("start %d, not 1 to 2^63-1", c.Start)
	case c.Window < 1 || c.Window > maxWindow:
		return c, invalid("window %d, not 1 to %d", c.Window, maxWindow)
	case c.MaxBuffered < 1 || c.MaxBuffered > maxHeld:
		return c, invalid("at most %d messages buffered, not 1 to %d", c.MaxBuffered, maxHeld)
	case c.MaxAhead < 1 || c.MaxAhead > MaxNumber:
		return c, invalid("at most %d ahead, not 1 to 2^63-1", c.MaxAhead)
	case c.MaxPayload < 1 || c.MaxPayload > mostPayload:
		return c, invalid("payload of at most %d bytes, not 1 to %d", c.MaxPayload, mostPayload)
	case c.AfterTimeout > Stop:
		return c, invalid("policy %d after the timeout of a gap", c.AfterTimeout)
	case c.OldEpoch > Keep:
		return c, invalid("policy %d for an old epoch", c.OldEpoch)
	case c.ResendBackoff.Delay(1, 0) < time.Millisecond:
		return c, invalid("re-sends are asked for after %v, at least %v", c.ResendBackoff.Delay(1, 0), time.Millisecond)
	}
	for _, d := range []struct {
		name      string
		d, lowest time.Duration
	}{
		{"gap timeout", c.GapTimeout, time.Millisecond}, {"alert after", c.AlertAfter, time.Millisecond},
		{"orphan wait", c.OrphanWait, time.Millisecond}, {"keep body", c.KeepBody, 0}, {"keep gaps", c.KeepGaps, 0},
		{"store timeout", c.StoreTimeout, time.Millisecond}, {"unavailable after", c.UnavailableAfter, time.Millisecond},
	} {
		if d.d < d.lowest || d.d > MaxDuration {
			return c, invalid("%s %v, not %v to %v", d.name, d.d, d.lowest, MaxDuration)
		}
	}
	return c, nil
}

// withDefaults returns a validated copy.
func (o *RunOptions) withDefaults() (RunOptions, error) {
	var c RunOptions
	if o != nil {
		c = *o
	}
	c.Concurrency = cmp.Or(c.Concurrency, 16)
	c.Batch = cmp.Or(c.Batch, 64)
	c.PerTx = cmp.Or(c.PerTx, 64)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 10)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.Poll = cmp.Or(c.Poll, 250*time.Millisecond)
	c.Grace = cmp.Or(c.Grace, 10*time.Second)
	if c.Backoff.IsZero() {
		c.Backoff = retry.Exponential(time.Second, time.Minute, retry.EqualJitter)
	}
	if err := c.Backoff.Validate(); err != nil {
		return c, invalid("%w", err)
	}
	switch {
	case c.Mode > AtMostOnce:
		return c, invalid("mode %d", c.Mode)
	case c.Concurrency < 1 || c.Concurrency > maxWorkers:
		return c, invalid("concurrency %d, not 1 to %d", c.Concurrency, maxWorkers)
	case c.Batch < 1 || c.Batch > maxBatch || c.PerTx < 1 || c.PerTx > maxBatch:
		return c, invalid("batch of %d or %d per transaction, not 1 to %d", c.Batch, c.PerTx, maxBatch)
	case c.MaxAttempts < 1:
		return c, invalid("%d attempts", c.MaxAttempts)
	case c.Lease < minLease || c.Lease > MaxDuration:
		return c, invalid("lease %v, not %v to %v", c.Lease, minLease, MaxDuration)
	case c.Poll < time.Millisecond || c.Poll > MaxDuration:
		return c, invalid("poll %v, not %v to %v", c.Poll, time.Millisecond, MaxDuration)
	case c.Grace < 0 || c.Timeout < 0:
		return c, invalid("negative grace %v or timeout %v", c.Grace, c.Timeout)
	}
	return c, nil
}

func (q *Query) validate() error {
	q.N = cmp.Or(q.N, 100)
	if q.N < 1 || q.N > maxPage {
		return invalid("page of %d, not 1 to %d", q.N, maxPage)
	}
	if q.Key == "" {
		return nil
	}
	return validID("key", q.Key)
}

// validName checks the names of scopes.
func validName(s string) bool {
	if len(s) < 1 || len(s) > 64 {
		return false
	}
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

// isNil finds a nil pointer in an interface, too, so that a forgotten error check
// shows in New and not in the first push.
func isNil(s Store) bool {
	if s == nil {
		return true
	}
	v := reflect.ValueOf(s)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// noStore is the store of a view that was made without one.
type noStore struct{ Store }

var errNoStore = invalid("a view on a nil store")

func (noStore) Push(context.Context, Params, []Arrival) ([]Answer, error) { return nil, errNoStore }
func (noStore) Claim(context.Context, Params, Ask) (Claimed, error)       { return Claimed{}, errNoStore }
func (noStore) Settle(context.Context, Params, []Settlement) ([]error, error) {
	return nil, errNoStore
}
func (noStore) Account(context.Context, string, string) (Account, error) {
	return Account{}, errNoStore
}
func (noStore) Find(context.Context, Params, []Place) ([]Found, error)   { return nil, errNoStore }
func (noStore) Gaps(context.Context, string, Query) ([]Gap, error)       { return nil, errNoStore }
func (noStore) Parked(context.Context, string, Query) ([]Message, error) { return nil, errNoStore }
func (noStore) Totals(context.Context, string) (Totals, error)           { return Totals{}, errNoStore }
