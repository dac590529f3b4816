// Package redispart spreads the keys of a store over a fixed number of
// partitions of Redis, and runs scripts in them.
//
// All keys of a partition carry the same hash tag, so they lie in one slot of a
// Redis Cluster and a script may touch any of them, and one partition only. The
// number of partitions and the hash below are part of what is stored: with
// another number the same ID is looked for elsewhere. [Partitions.CheckLayout]
// guards against that.
package redispart

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

// Default is the number of partitions where none is asked for, and Max the
// largest. Every partition that a batch touches costs one more script call, so
// more of them make batches slower; fewer spread worse over the nodes of a
// cluster.
const (
	Default = 16
	Max     = 256
)

// DefaultPrefix begins every key where no other prefix is asked for.
const DefaultPrefix = "pawl"

// Partitions are the partitions of one store. They are safe for concurrent use.
type Partitions struct {
	client redis.UniversalClient
	tags   []string
	marker string // the key that holds the layout
	layout string

	servers atomic.Int32 // see OneServer
}

// New returns the n partitions of a room, which is the name of the primitive:
// {<prefix>:<room>:00}, {<prefix>:<room>:01} and so on. version is that of the
// store's layout. An empty prefix means [DefaultPrefix], and a zero n [Default].
// New does no I/O.
func New(client redis.UniversalClient, prefix, room string, n, version int) (*Partitions, error) {
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("the client is nil")
	}
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if n == 0 {
		n = Default
	}
	if len(prefix) > 64 || !utf8.ValidString(prefix) || strings.ContainsAny(prefix, "{}\x00") {
		return nil, fmt.Errorf("prefix %q: it must be at most 64 bytes of UTF-8 without braces and NUL", prefix)
	}
	if n < 1 || n > Max {
		return nil, fmt.Errorf("%d partitions: it must be 1 to %d", n, Max)
	}
	p := &Partitions{
		client: client,
		tags:   make([]string, n),
		marker: prefix + ":" + room + ":layout",
		layout: fmt.Sprintf("pawl %s layout %d, %d partitions", room, version, n),
	}
	for i := range p.tags {
		p.tags[i] = fmt.Sprintf("{%s:%s:%02x}", prefix, room, i)
	}
	return p, nil
}

// Len returns the number of partitions.
func (p *Partitions) Len() int { return len(p.tags) }

// Tag returns the hash tag of a partition, with its braces. All keys of the
// partition begin with it.
func (p *Partitions) Tag(i int) string { return p.tags[i] }

// Of returns the partition of an ID: the 64-bit FNV-1a hash of its bytes, the
// upper half folded into the lower, modulo the number of partitions.
func (p *Partitions) Of(id string) int {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h ^= uint64(id[i])
		h *= 1099511628211
	}
	return int((h ^ h>>32) % uint64(len(p.tags)))
}

// Split sorts the n items of a batch by partition; id returns the ID of each. It
// returns the partition of each item, and for each partition the places of its
// items, in the order of the batch.
func (p *Partitions) Split(n int, id func(i int) string) (of []int, places [][]int) {
	all := make([]int, 2*n)
	of, order := all[:n], all[n:]
	sizes := make([]int, len(p.tags))
	for i := range of {
		of[i] = p.Of(id(i))
		sizes[of[i]]++
	}
	places = make([][]int, len(p.tags))
	for k, size := range sizes {
		places[k], order = order[:0:size], order[size:]
	}
	for i, k := range of {
		places[k] = append(places[k], i)
	}
	return of, places
}

// OneServer says whether all partitions lie on one server, so that a script may
// touch several: the client is a plain one, and its server says that it is no
// part of a cluster. It asks once. What does not answer that question, such as a
// proxy that spreads keys over servers, counts as many servers.
func (p *Partitions) OneServer(ctx context.Context) bool {
	if known := p.servers.Load(); known != unasked {
		return known == one
	}
	answer := many
	if client, plain := p.client.(*redis.Client); plain {
		info, err := client.Info(ctx, "server").Result()
		if err != nil && !isRefusal(err) {
			return false // ask again next time
		}
		fields := infoFields(info)
		if fields["redis_mode"] == "standalone" || fields["server_mode"] == "standalone" { // Valkey has the second
			answer = one
		}
	}
	p.servers.Store(answer)
	return answer == one
}

// What is known of the servers.
const (
	unasked int32 = iota
	one
	many
)
