package dedup

import (
	"cmp"
	"context"
	"reflect"
	"time"
	"unicode/utf8"
)

// What a guard refuses before it sends anything.

func (r *Request) validate() error {
	switch n := len(r.ID); {
	case n == 0:
		return invalid("empty ID")
	case n > MaxID:
		return invalid("ID of %d bytes, at most %d", n, MaxID)
	}
	for i := range len(r.ID) {
		if r.ID[i] == 0 {
			return invalid("ID %s has a NUL byte at %d", short(r.ID), i)
		}
	}
	if !utf8.ValidString(r.ID) {
		return invalid("ID %s is not valid UTF-8", short(r.ID))
	}
	return nil
}

// MaxID is the length of the longest ID in bytes.
const MaxID = 512

func (s *Settlement) validate(resultSize int) error {
	r := Request{ID: s.ID}
	if err := r.validate(); err != nil {
		return err
	}
	switch s.Kind {
	case KindComplete:
		if len(s.Result) > resultSize {
			return &ResultSizeError{Size: len(s.Result), Limit: resultSize}
		}
	case KindExtend:
		if s.Lease < minLease || s.Lease > MaxDuration {
			return invalid("extension by %v, not %v to %v", s.Lease, minLease, MaxDuration)
		}
	case KindRelease, KindHold:
	case KindForget:
		return nil
	case KindRetain:
		if s.Retention < minLease || s.Retention > MaxDuration {
			return invalid("retain %s for %v, not %v to %v", short(s.ID), s.Retention, minLease, MaxDuration)
		}
		return nil
	default:
		return invalid("settlement without a kind")
	}
	if s.Token == 0 {
		return invalid("%s of %s without a token: only an acquired or unknown claim can be settled", s.Kind, short(s.ID))
	}
	return nil
}

const (
	minLease      = time.Millisecond
	maxResultSize = 16 << 20
)

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
	c.Scope = cmp.Or(c.Scope, "default")
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.Retention = cmp.Or(c.Retention, 8*24*time.Hour)
	c.ResultSize = cmp.Or(c.ResultSize, 64<<10)
	c.SettleTimeout = cmp.Or(c.SettleTimeout, 5*time.Second)
	switch {
	case !validScope(c.Scope):
		return c, invalid("scope of %d bytes, not [A-Za-z0-9._-]{1,64}", len(c.Scope))
	case c.OnLapse > Hold:
		return c, invalid("policy %d", c.OnLapse)
	case c.Lease < minLease || c.Lease > MaxDuration:
		return c, invalid("lease %v, not %v to %v", c.Lease, minLease, MaxDuration)
	case c.Retention < minLease || c.Retention > MaxDuration:
		return c, invalid("retention %v, not %v to %v", c.Retention, minLease, MaxDuration)
	case c.Horizon < 0 || c.Wait < 0 || c.SettleTimeout < 0:
		return c, invalid("negative horizon %v, wait %v or settle timeout %v", c.Horizon, c.Wait, c.SettleTimeout)
	case c.Horizon > 0 && c.Retention <= c.Horizon:
		return c, invalid("retention %v does not exceed the horizon %v: a message re-sent late would run again", c.Retention, c.Horizon)
	case c.ResultSize < 0 || c.ResultSize > maxResultSize:
		return c, invalid("result size %d, not 1 to %d", c.ResultSize, maxResultSize)
	}
	return c, nil
}

func validScope(s string) bool {
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
// shows in New and not in the first claim.
func isNil(s Store) bool {
	if s == nil {
		return true
	}
	v := reflect.ValueOf(s)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// noStore is the store of a view that was made without one.
type noStore struct{}

func (noStore) Claim(context.Context, Params, []Ask) ([]Claim, error) {
	return nil, invalid("a view on a nil store")
}

func (noStore) Settle(context.Context, Params, []Settlement) ([]error, error) {
	return nil, invalid("a view on a nil store")
}

func (noStore) Held(context.Context, string, string, int) ([]Claim, error) {
	return nil, invalid("a view on a nil store")
}
