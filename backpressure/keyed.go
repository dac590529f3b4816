package backpressure

import (
	"cmp"
	"hash/maphash"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// MaxKey is the length of the longest key of a [Keyed] and of the longest name, in
// bytes.
const MaxKey = 512

// A Keyed admits calls at one rate for each of many keys: customers, accounts,
// addresses. Make it with [NewKeyed]. It is safe for concurrent use.
//
// Its memory is bounded. When the table is full, a key whose bucket is full is
// dropped for a new one, which changes nothing for either. When none of those
// looked at is, new keys share 16 buckets of the same rate: whoever comes with ever
// new keys gets those and no more.
type Keyed struct {
	opts  KeyedOptions
	start time.Time
	seed  maphash.Seed
	parts []keyedPart
}

// KeyedOptions set up a [Keyed].
type KeyedOptions struct {
	// Rate is how many tokens each key gets in a second: above 0, at most 1e9.
	Rate float64
	// Burst is how many tokens a key can save up. It is at most 5 times the rate, or
	// 1 where that is less. Zero means the rate, rounded up. See [LineOptions].
	Burst int
	// Keys is how many keys are remembered, at about 250 bytes each and the key.
	// Zero means 10,000; at most 10 million.
	Keys int
}

// NewKeyed returns a limit by key. It fails with an [*OptionError] on options
// outside their range.
func NewKeyed(opts *KeyedOptions) (*Keyed, error) {
	var o KeyedOptions
	if opts != nil {
		o = *opts
	}
	burst, err := bucket("keyed", o.Rate, o.Burst)
	if err != nil {
		return nil, err
	}
	o.Burst, o.Keys = burst, cmp.Or(o.Keys, 10_000)
	if o.Keys < 1 || o.Keys > maxKeys {
		return nil, badOption("keyed", "Keys", "is %d, not 1 to %d", o.Keys, maxKeys)
	}
	k := &Keyed{opts: o, start: time.Now(), seed: maphash.MakeSeed()}
	k.parts = make([]keyedPart, min(keyedParts, o.Keys))
	for i := range k.parts {
		p := &k.parts[i]
		p.limit = o.Keys / len(k.parts)
		if i < o.Keys%len(k.parts) {
			p.limit++
		}
		p.places, p.last = make(map[string]int), k.start
		p.shared = rate.NewLimiter(rate.Limit(o.Rate), burst)
	}
	return k, nil
}

const (
	maxKeys    = 10_000_000
	keyedParts = 16 // each with a lock of its own
	keyedLooks = 8  // how many keys are looked at for one that can be dropped
)

// Allow asks for the tokens of a call of that cost for a key of 1 to [MaxKey]
// bytes. When it refuses, nothing was taken.
func (k *Keyed) Allow(key string, cost int) Verdict {
	if len(key) == 0 || len(key) > MaxKey {
		return Verdict{Reason: KeyInvalid}
	}
	if cost < 1 || cost > k.opts.Burst {
		return Verdict{Reason: CostInvalid}
	}
	now := k.start.Add(time.Since(k.start))
	p := &k.parts[maphash.String(k.seed, key)%uint64(len(k.parts))]
	return p.allow(now, key, cost, k.opts)
}

// KeyedStats are what a [Keyed] has counted since it was made.
type KeyedStats struct {
	Admitted, Refused uint64
	// Shared counts calls of keys that there was no room for. When it grows, allow
	// more Keys.
	Shared uint64
	// Keys is how many are remembered.
	Keys int
}

// Stats returns a snapshot.
func (k *Keyed) Stats() KeyedStats {
	var all KeyedStats
	for i := range k.parts {
		p := &k.parts[i]
		p.mu.Lock()
		all.Admitted += p.counts.Admitted
		all.Refused += p.counts.Refused
		all.Shared += p.counts.Shared
		all.Keys += len(p.keys)
		p.mu.Unlock()
	}
	return all
}

type keyedPart struct {
	mu     sync.Mutex
	limit  int
	last   time.Time
	places map[string]int // in keys
	keys   []keyedBucket
	hand   int // of the search for a key to drop
	shared *rate.Limiter
	counts KeyedStats
	_      [32]byte
}

type keyedBucket struct {
	key     string
	limiter *rate.Limiter
}

func (p *keyedPart) allow(now time.Time, key string, cost int, o KeyedOptions) Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.last) { // see Line.clock
		now = p.last
	}
	p.last = now
	b := p.bucket(now, key, o)
	if b.AllowN(now, cost) {
		p.counts.Admitted++
		return Verdict{Admit: true}
	}
	p.counts.Refused++
	return Verdict{Reason: NoTokens, RetryAfter: untilTokens(float64(cost)-b.TokensAt(now), b.Limit())}
}

// bucket finds the bucket of a key, or makes room for one.
func (p *keyedPart) bucket(now time.Time, key string, o KeyedOptions) *rate.Limiter {
	if i, ok := p.places[key]; ok {
		return p.keys[i].limiter
	}
	if len(p.keys) < p.limit {
		p.places[key] = len(p.keys)
		p.keys = append(p.keys, keyedBucket{key, rate.NewLimiter(rate.Limit(o.Rate), o.Burst)})
		return p.keys[len(p.keys)-1].limiter
	}
	for range min(keyedLooks, len(p.keys)) {
		p.hand = (p.hand + 1) % len(p.keys)
		if b := &p.keys[p.hand]; b.limiter.TokensAt(now) >= float64(o.Burst) { // as good as new
			delete(p.places, b.key)
			p.places[key], b.key = p.hand, key
			return b.limiter
		}
	}
	p.counts.Shared++
	return p.shared
}
