package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// A step does one call and returns how many items it dealt with.
type step func(ctx context.Context) (items int, err error)

// fan runs workers goroutines until d has passed and returns the items done per
// second. A call that is under way when the time is up is finished and counted,
// and so is its time. The first error ends the run.
func fan(ctx context.Context, workers int, d time.Duration, newStep func(worker int) step) (float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	steps := make([]step, workers)
	for i := range steps {
		steps[i] = newStep(i)
	}
	var done atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	end := start.Add(d)
	for _, next := range steps {
		all.Go(func() {
			var mine int64
			for ctx.Err() == nil && time.Now().Before(end) {
				n, err := next(ctx)
				if err != nil {
					cancel(err)
					break
				}
				mine += int64(n)
			}
			done.Add(mine)
		})
	}
	all.Wait()
	elapsed := time.Since(start)
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	return float64(done.Load()) / elapsed.Seconds(), nil
}

// errNotNew is the answer that no case may get: all IDs here are new.
var errNotNew = errors.New("an ID that is new was not answered as new")

// randomIDs returns a source of IDs in the form of a random UUID: 36 bytes, each
// new, in no order. Two sources never return the same ID. A source is for one
// goroutine.
func randomIDs() func() string {
	n, tag := rand.Uint64(), rand.Uint64()
	return func() string {
		n += 0x9e3779b97f4a7c15 // the counter of splitmix64, whose output never repeats
		z := n
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return uuid(z^z>>31, tag)
	}
}

func uuid(a, b uint64) string {
	var raw [16]byte
	for i := range 8 {
		raw[i], raw[8+i] = byte(a>>(56-8*i)), byte(b>>(56-8*i))
	}
	var s [36]byte
	hex.Encode(s[:8], raw[:4])
	hex.Encode(s[9:13], raw[4:6])
	hex.Encode(s[14:18], raw[6:8])
	hex.Encode(s[19:23], raw[8:10])
	hex.Encode(s[24:], raw[10:])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}

// workerIDs makes the source of IDs of one worker. randomIDs is one.
type workerIDs func() (next func() string)

// sequentialIDs returns one source for all workers, of IDs of 36 bytes that rise
// in byte order.
func sequentialIDs() workerIDs {
	var n atomic.Uint64
	next := func() string { return fmt.Sprintf("message-%028d", n.Add(1)) }
	return func() func() string { return next }
}

// batchOf fills a batch from a source.
func batchOf(n int, next func() string) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = next()
	}
	return ids
}
