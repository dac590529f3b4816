package lww_test

import (
	"fmt"

	"github.com/pawl-go/pawl/reconcile/lww"
)

// Two regions write one key while they do not hear of each other. Both end with the
// same value, and both are told which one was lost.
func Example() {
	frankfurt, _ := lww.New(1, &lww.Options{Regions: []uint8{1, 2}})
	singapore, _ := lww.New(2, &lww.Options{Regions: []uint8{1, 2}})
	send := func(from, to *lww.Map) {
		deltas, err := from.Delta(to.Region(), from.Acknowledged(to.Region()), 0)
		if err != nil {
			panic(err)
		}
		for _, d := range deltas { // over the network: d.MarshalBinary, d.UnmarshalBinary
			merged, err := to.Apply(d)
			if err != nil {
				panic(err)
			}
			for _, c := range merged.Changes {
				fmt.Printf("region %d: %s is %q, lost %q, conflict %v\n", to.Region(), c.Key, c.Now.Value(), c.Lost.Value(), c.Conflict)
			}
		}
	}
	frankfurt.Set("session/17", []byte("agent Ada"))
	singapore.Set("session/17", []byte("agent Bo"))
	send(frankfurt, singapore)
	send(singapore, frankfurt)

	// Whoever has seen a write overwrites it, and that is no conflict.
	frankfurt.Set("session/17", []byte("agent Cy"))
	send(frankfurt, singapore)
	// Output:
	// region 2: session/17 is "agent Bo", lost "agent Ada", conflict true
	// region 1: session/17 is "agent Bo", lost "agent Ada", conflict true
	// region 2: session/17 is "agent Cy", lost "agent Bo", conflict false
}

// A register without a map: in a row of the caller's own, which two regions write.
func ExampleRegister() {
	var row lww.Register
	mine, _ := row.Set(1, []byte("draft"))
	theirs, _ := row.Delete(2)

	change := mine.Merge(theirs)
	fmt.Println(change.Now.State(), change.Now.Stamp(), "lost:", string(change.Lost.Value()), change.Conflict)
	stored, _ := change.Now.MarshalBinary()

	var again lww.Register
	fmt.Println(again.UnmarshalBinary(stored), again.Merge(mine).Outcome)
	// Output:
	// deleted 1@2 lost: draft true
	// <nil> ignored
}

// What must not leave its region: the other one knows that there is a newer value.
func ExampleOptions_residency() {
	opts := &lww.Options{
		Regions:   []uint8{1, 2},
		Residency: func(from, to uint8, key string) bool { return from == 1 },
	}
	home, _ := lww.New(1, opts)
	abroad, _ := lww.New(2, opts)
	home.Set("customer/9", []byte("stays here"))
	deltas, _ := home.Delta(2, lww.Vector{}, 0)
	if _, err := abroad.Apply(deltas[0]); err != nil {
		panic(err)
	}
	r := abroad.Get("customer/9")
	fmt.Println(r.State(), r.Stamp(), len(r.Value()))
	// Output: remote 1@1 0
}

// A write of a clock that has run away waits for a person.
func ExampleMap_Quarantined() {
	broken, _ := lww.New(2, nil)
	broken.Raise(1 << 60)
	broken.Set("price", []byte("9.99"))

	m, _ := lww.New(1, &lww.Options{Regions: []uint8{2}})
	m.Merge(broken.Export(1, "price")...)
	fmt.Println(m.Get("price").State())
	for _, e := range m.Quarantined("", 100) {
		fmt.Println(e.Key, e.Register.Stamp(), string(e.Register.Value()))
		if _, err := m.Release(e.Key, e.Register.Stamp()); err != nil {
			panic(err)
		}
	}
	fmt.Println(string(m.Get("price").Value()))
	// Output:
	// absent
	// price 1152921504606846977@2 9.99
	// 9.99
}
