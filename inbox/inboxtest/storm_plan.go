package inboxtest

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// A storm is one call of Storm.
type storm struct {
	StormConfig
	rnd    *rand.Rand
	client *http.Client
	shots  []*shot // all that were delivered
}

// A shot is one delivery.
type shot struct {
	kind    StormKind
	body    int // in the corpus
	content []byte
	sign    func(at time.Time) Signature
	delay   time.Duration
	place   float64 // in the order of all
	twins   []*shot // sent at the same moment

	status int    // of the last answer; zero: none
	failed string // why there is none
}

// plan makes all deliveries but the replays, in their order.
func (s *storm) plan() []*shot {
	var all []*shot
	for i := range s.Corpus {
		first := s.good(StormGood, i)
		if s.InOrder {
			first.place = (float64(i) + 0.5) / float64(len(s.Corpus))
		}
		all = append(all, first)
		for n := range s.Duplicates {
			again := s.good(StormDuplicate, i)
			if n%2 == 0 {
				first.twins = append(first.twins, again)
				continue
			}
			again.place = first.place + again.place*(1-first.place)
			all = append(all, again)
		}
		for n := range s.Malformed {
			all = append(all, s.malformed(i, n))
		}
		for n := range s.Forged {
			all = append(all, s.forged(i, n))
		}
	}
	slices.SortStableFunc(all, func(a, b *shot) int { return cmp.Compare(a.place, b.place) })
	return all
}

// replays makes the deliveries that were signed at another time.
func (s *storm) replays(at time.Time) (all []*shot) {
	for i, b := range s.Corpus {
		for range s.Replays {
			r := s.good(StormReplay, i)
			signature := s.Sign(bytes.Clone(b.Content), at)
			r.sign = func(time.Time) Signature { return signature }
			all = append(all, r)
		}
	}
	s.rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// good makes a delivery of a body as the provider sends it.
func (s *storm) good(k StormKind, body int) *shot {
	return s.shot(k, body, s.Corpus[body].Content)
}

// malformed makes a delivery of a broken body, signed as the provider would.
func (s *storm) malformed(body, n int) *shot {
	return s.shot(StormMalformed, body, broken(s.Corpus[body].Content, body+n, s.rnd))
}

// forged makes a delivery that the provider has not signed.
func (s *storm) forged(body, n int) *shot {
	f := s.shot(StormForged, body, s.Corpus[body].Content)
	f.sign = func(at time.Time) Signature {
		all := s.Forge(bytes.Clone(f.content), at)
		if len(all) == 0 {
			return Signature{}
		}
		return all[(body+n)%len(all)]
	}
	return f
}

func (s *storm) shot(k StormKind, body int, content []byte) *shot {
	one := &shot{kind: k, body: body, content: content, place: s.rnd.Float64(), failed: "it was not sent"}
	one.sign = func(at time.Time) Signature { return s.Sign(bytes.Clone(content), at) }
	if s.Delay > 0 {
		one.delay = time.Duration(s.rnd.Int64N(int64(s.Delay) + 1))
	}
	return one
}

// name is what failures call a body of the corpus.
func (s *storm) name(body int) string {
	if n := s.Corpus[body].Name; n != "" {
		return n
	}
	return fmt.Sprintf("body %d of the corpus", body)
}

// forgeries are the signatures of somebody who has no secret.
func (c *StormConfig) forgeries(body []byte, at time.Time) []Signature {
	return []Signature{{}, c.Sign(append(bytes.Clone(body), "another"...), at)}
}

// broken breaks a body in the n-th of the ways there are. None of them leaves
// events with other identities than the body has, whatever reads it: so a body
// that is neither JSON nor XML, of which a part may well mean something else, is
// replaced and not cut.
func broken(content []byte, n int, rnd *rand.Rand) []byte {
	whole := bytes.TrimSpace(content)
	replaced := []func() []byte{
		func() []byte { return nil },
		func() []byte {
			nested := "["
			if bytes.HasPrefix(whole, []byte("<")) {
				nested = "<a>"
			}
			return bytes.Repeat([]byte(nested), 100_000)
		},
		func() []byte {
			other := []string{"null", "[]", "{}", `""`, "0", "1e400", "true", "<a/>"}
			return []byte(other[rnd.IntN(len(other))])
		},
	}
	damaged := []func() []byte{
		func() []byte { return whole[:rnd.IntN(len(whole))] },
		func() []byte { return slices.Concat(whole, whole) },
		func() []byte { return slices.Concat([]byte{0xff}, whole) },
		func() []byte { return slices.Concat([]byte("\ufeff"), whole) },
		func() []byte { return slices.Concat(whole, []byte{0}) },
	}
	ways := replaced
	if len(whole) > 0 && bytes.IndexByte([]byte("{[<"), whole[0]) >= 0 {
		ways = append(damaged, replaced...)
	}
	return ways[n%len(ways)]()
}
