package seqgen

import "testing"

// A key that is added while the generator is closed would never be returned.
func TestClosedTableAddsNothing(t *testing.T) {
	table := newTable(10)
	add := func(key string) *Sequence {
		return table.get(key, func() *Sequence { return &Sequence{key: key} }, true)
	}
	s := add("a")
	table.close()
	if add("a") != s || add("b") != nil {
		t.Error("a closed table does not keep what it has, or takes more")
	}
	table.remove(s)
	if add("a") != nil || len(table.list()) != 0 {
		t.Error("a closed table takes a key again")
	}
}
