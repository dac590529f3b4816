package seqgentest

import (
	"context"
	"fmt"
	"slices"

	"github.com/pawl-go/pawl/seqgen"
)

// Look and Voids.
var listCases = []testCase{
	{name: "LookAnswersInOrder", run: lookInOrder},
	{name: "VoidsInARange", run: voidsInARange},
	{name: "VoidsPages", run: voidsPages},
	{name: "VoidsAreInTheOrderOfNumbers", run: voidsInOrder},
	{name: "VoidsOfOneKeyAndEpoch", run: voidsOfOneKey},
	{name: "VoidsOfUnknown", run: voidsOfUnknown},
}

func lookInOrder(e *env) {
	var keys []string
	for n := range 20 {
		key := fmt.Sprintf("key-%d", n)
		keys = append(keys, key)
		if n%3 != 0 {
			e.grant(single(key, n), 1, 1, uint64(n))
		}
	}
	slices.Reverse(keys)
	keys = append(keys, keys[0])
	states, err := e.store.Look(context.Background(), e.p.Scope, keys)
	if err != nil || len(states) != len(keys) {
		e.Fatalf("Look at %d keys returned %d states, %v", len(keys), len(states), err)
	}
	for i, s := range states {
		n := 19 - i%20
		want := seqgen.State{Key: keys[i]}
		if n%3 != 0 {
			want.Epoch, want.Last, want.Mode = 1, uint64(n), seqgen.Single
		}
		if s != want {
			e.Fatalf("state %d is %+v, want %+v", i, s, want)
		}
	}
}

// scattered voids 5-6, 10-12, 20, 30-35 of a hundred numbers.
func (e *env) scattered(key string) {
	e.Helper()
	e.grant(single(key, 100), 1, 1, 100)
	for _, v := range [][2]uint64{{20, 20}, {5, 6}, {30, 35}, {10, 12}} {
		e.apply(void(key, 1, v[0], v[1]))
	}
}

func voidsInARange(e *env) {
	e.scattered("key")
	for _, c := range []struct {
		from, to uint64
		want     []uint64 // the Lo of each
	}{
		{1, 4, nil}, {1, 5, []uint64{5}}, {6, 6, []uint64{5}}, {7, 9, nil}, {6, 10, []uint64{5, 10}},
		{11, 11, []uint64{10}}, {12, 19, []uint64{10}}, {13, 19, nil}, {20, 20, []uint64{20}}, {21, 29, nil},
		{33, 100, []uint64{30}}, {36, 100, nil}, {1, seqgen.MaxNumber, []uint64{5, 10, 20, 30}},
		{9, 34, []uint64{10, 20, 30}}, {101, seqgen.MaxNumber, nil},
	} {
		var got []uint64
		for _, v := range e.voids("key", 1, c.from, c.to, 10) {
			got = append(got, v.Lo)
		}
		if !slices.Equal(got, c.want) {
			e.Fatalf("voids with a number in %d to %d begin at %v, want %v", c.from, c.to, got, c.want)
		}
	}
	if v := e.voids("key", 1, 33, 33, 10); v[0].Lo != 30 || v[0].Hi != 35 {
		e.Fatalf("a void with a number in 33 to 33 was cut to %d to %d", v[0].Lo, v[0].Hi)
	}
}

func voidsPages(e *env) {
	e.scattered("key")
	for limit := 1; limit <= 5; limit++ {
		var got []uint64
		for from := uint64(1); ; {
			page := e.voids("key", 1, from, seqgen.MaxNumber, limit)
			if len(page) > limit {
				e.Fatalf("a page of at most %d has %d", limit, len(page))
			}
			for _, v := range page {
				got = append(got, v.Lo)
			}
			if len(page) < limit {
				break
			}
			from = page[len(page)-1].Hi + 1
		}
		if !slices.Equal(got, []uint64{5, 10, 20, 30}) {
			e.Fatalf("in pages of %d the voids begin at %v", limit, got)
		}
	}
}

func voidsInOrder(e *env) {
	e.apply(raise("key", 1, seqgen.MaxNumber, 0))
	want := []uint64{1, 9, 11, 99, 101, 255, 257, 65535, 1<<31 + 1, 1<<32 + 1, 1<<53 - 1, 1<<53 + 1, 1<<62 + 1, seqgen.MaxNumber}
	for _, i := range []int{5, 0, 12, 3, 9, 1, 7, 13, 2, 11, 4, 8, 6, 10} {
		e.apply(void("key", 1, want[i], want[i]))
	}
	var got []uint64
	for _, v := range e.allVoids("key", 1) {
		if v.Lo != v.Hi {
			e.Fatalf("a void of one number is listed as %d to %d", v.Lo, v.Hi)
		}
		got = append(got, v.Lo)
	}
	if !slices.Equal(got, want) {
		e.Fatalf("the voids are in the order %v, want %v", got, want)
	}
	if v := e.voids("key", 1, 1<<53, 1<<53, 10); len(v) != 0 {
		e.Fatalf("2^53 is listed as void: %+v", v)
	}
}

func voidsOfOneKey(e *env) {
	for _, key := range []string{"key", "key2", "ke", "key:1", "other"} {
		e.grant(single(key, 10), 1, 1, 10)
		e.apply(bump(key, 9))
		e.grant(single(key, 10), 10, 1, 10)
	}
	e.apply(void("key", 1, 2, 2))
	e.apply(void("key", 10, 3, 3))
	e.apply(void("key2", 1, 4, 4))
	e.wantVoids("key", 1, rng{2, 2, certain, seqgen.GaveUp})
	e.wantVoids("key", 10, rng{3, 3, certain, seqgen.GaveUp})
	e.wantVoids("key2", 1, rng{4, 4, certain, seqgen.GaveUp})
	for _, key := range []string{"ke", "key:1", "other"} {
		e.wantVoids(key, 1)
		e.wantVoids(key, 10)
	}
	e.wantVoids("key", 2)
}

func voidsOfUnknown(e *env) {
	e.wantVoids("new", 1)
	e.grant(single("key", 1), 1, 1, 1)
	e.wantVoids("key", 1)
	e.wantVoids("key", 77)
}
