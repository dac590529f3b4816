package reconcile

import (
	"cmp"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawl-go/pawl/retry"
)

// What a ledger refuses before it sends anything.

const (
	minLease = time.Millisecond
	maxBytes = 16 << 20
	maxPage  = 1000
)

func (o *Op) validate(payloadSize int) error {
	if err := validKey(o.Key); err != nil {
		return err
	}
	switch {
	case !validText(o.Account, MaxKey):
		return invalid("account of %d bytes, not 0 to %d of UTF-8 without NUL; nothing was sent", len(o.Account), MaxKey)
	case len(o.Payload) > payloadSize:
		return invalid("payload of %d bytes, at most %d; nothing was sent", len(o.Payload), payloadSize)
	}
	return nil
}

func validKey(key string) error {
	if key == "" || !validText(key, MaxKey) {
		return invalid("key of %d bytes, not 1 to %d of UTF-8 without NUL; nothing was sent", len(key), MaxKey)
	}
	return nil
}

func validText(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
}

// note cuts a note to what can be stored.
func note(s string) string {
	s = strings.ReplaceAll(s, "\x00", "")
	return strings.ToValidUTF8(s[:min(len(s), MaxNote)], "")
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
	c.Kind = cmp.Or(c.Kind, "default")
	c.Quiet = cmp.Or(c.Quiet, 2*time.Minute)
	c.SettleTime = cmp.Or(c.SettleTime, 30*time.Second)
	c.Patience = cmp.Or(c.Patience, 24*time.Hour)
	c.MaxLooks = cmp.Or(c.MaxLooks, 10)
	c.MaxSends = cmp.Or(c.MaxSends, 5)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.Retention = cmp.Or(c.Retention, 30*24*time.Hour)
	c.ResultSize = cmp.Or(c.ResultSize, 64<<10)
	c.PayloadSize = cmp.Or(c.PayloadSize, 64<<10)
	c.SettleTimeout = cmp.Or(c.SettleTimeout, 5*time.Second)
	switch {
	case !validKind(c.Kind):
		return c, invalid("kind of %d bytes, not [A-Za-z0-9._-]{1,64}", len(c.Kind))
	case c.Lease < minLease || c.Lease > MaxDuration:
		return c, invalid("lease %v, not %v to %v", c.Lease, minLease, MaxDuration)
	case c.Quiet < minLease || c.Quiet > MaxDuration:
		return c, invalid("quiet period %v, not %v to %v", c.Quiet, minLease, MaxDuration)
	case c.SettleTime < minLease || c.SettleTime > MaxDuration:
		return c, invalid("settle time %v, not %v to %v", c.SettleTime, minLease, MaxDuration)
	case c.Patience < minLease || c.Patience > MaxDuration:
		return c, invalid("patience %v, not %v to %v", c.Patience, minLease, MaxDuration)
	case c.Horizon < 0 || c.SettleTimeout < 0:
		return c, invalid("negative horizon %v or settle timeout %v", c.Horizon, c.SettleTimeout)
	case c.Horizon > 0 && c.Horizon <= c.Lease:
		return c, invalid("horizon %v does not exceed the lease %v: nothing could be sent again", c.Horizon, c.Lease)
	case c.Retention <= c.Horizon || c.Retention < minLease || c.Retention > MaxDuration:
		return c, invalid("retention %v, which must exceed the horizon %v: a key would be new here while the remote remembers it", c.Retention, c.Horizon)
	case c.MaxLooks < 1 || c.MaxLooks > math.MaxInt32 || c.MaxSends < 1 || c.MaxSends > math.MaxInt32:
		return c, invalid("at most %d looks and %d sends", c.MaxLooks, c.MaxSends)
	case c.ResultSize < 1 || c.ResultSize > maxBytes || c.PayloadSize < 1 || c.PayloadSize > maxBytes:
		return c, invalid("result size %d or payload size %d, not 1 to %d", c.ResultSize, c.PayloadSize, maxBytes)
	}
	if c.Backoff.IsZero() {
		c.Backoff = retry.Exponential(c.Quiet, max(c.Quiet, time.Hour), retry.NoJitter)
	}
	if err := c.Backoff.Validate(); err != nil {
		return c, invalid("backoff: %v", err)
	}
	return c, nil
}

func validKind(s string) bool {
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

// isNil finds a nil pointer in an interface, too.
func isNil(s any) bool {
	if s == nil {
		return true
	}
	v := reflect.ValueOf(s)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
