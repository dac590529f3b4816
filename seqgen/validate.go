package seqgen

import (
	"cmp"
	"context"
	"reflect"
	"time"
	"unicode/utf8"
)

// What a generator refuses before it sends anything.

func validateKey(key string) error {
	switch n := len(key); {
	case n == 0:
		return invalid("empty key")
	case n > MaxKey:
		return invalid("key of %d bytes, at most %d", n, MaxKey)
	}
	for i := range len(key) {
		if key[i] == 0 {
			return invalid("key %s has a NUL byte at %d", short(key), i)
		}
	}
	if !utf8.ValidString(key) {
		return invalid("key %s is not valid UTF-8", short(key))
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
	if c.Witness != nil && isNil(c.Witness) {
		return c, invalid("witness is a nil pointer")
	}
	c.Scope = cmp.Or(c.Scope, "default")
	c.Mode = cmp.Or(c.Mode, Single)
	c.MaxBlock = cmp.Or(c.MaxBlock, MaxBlock)
	c.Block = cmp.Or(c.Block, min(64, max(c.MaxBlock, 1)))
	c.MaxKeys = cmp.Or(c.MaxKeys, 100_000)
	c.Retention = cmp.Or(c.Retention, 30*24*time.Hour)
	c.SettleTimeout = cmp.Or(c.SettleTimeout, 5*time.Second)
	switch {
	case !validScope(c.Scope):
		return c, invalid("scope of %d bytes, not [A-Za-z0-9._-]{1,64}", len(c.Scope))
	case c.Mode > Gapless:
		return c, invalid("mode %d", c.Mode)
	case c.MaxBlock < 1 || c.MaxBlock > MaxBlock:
		return c, invalid("largest block of %d, not 1 to %d", c.MaxBlock, MaxBlock)
	case c.Block < 1 || c.Block > c.MaxBlock:
		return c, invalid("block of %d, not 1 to %d", c.Block, c.MaxBlock)
	case c.MaxKeys < 1:
		return c, invalid("%d keys at most", c.MaxKeys)
	case c.Retention < time.Millisecond || c.Retention > MaxDuration:
		return c, invalid("retention %v, not %v to %v", c.Retention, time.Millisecond, MaxDuration)
	case c.SettleTimeout < 0:
		return c, invalid("negative settle timeout %v", c.SettleTimeout)
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
// shows in New and not in the first number.
func isNil(s Store) bool {
	if s == nil {
		return true
	}
	v := reflect.ValueOf(s)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// noStore is the store of a view that was made without one.
type noStore struct{}

func (noStore) Reserve(context.Context, Params, []Ask) ([]Grant, error) {
	return nil, invalid("a view on a nil store")
}

func (noStore) Settle(context.Context, Params, []Change) ([]Outcome, error) {
	return nil, invalid("a view on a nil store")
}

func (noStore) Look(context.Context, string, []string) ([]State, error) {
	return nil, invalid("a view on a nil store")
}

func (noStore) Voids(context.Context, VoidQuery) ([]Void, error) {
	return nil, invalid("a view on a nil store")
}
