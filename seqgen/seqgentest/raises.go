package seqgentest

import "github.com/pawl-go/pawl/seqgen"

// Records of a witness.
var raiseCases = []testCase{
	{name: "RaiseMakesTheRecord", run: raiseMakes},
	{name: "RaiseOnlyRaises", run: raiseOnlyRaises},
	{name: "RaiseIsComparedByEpochFirst", run: raiseByEpoch},
	{name: "RaisedRecordIsLoweredByItsOwner", run: raisedIsLowered},
	{name: "RaiseOfASequence", run: raiseOfASequence},
}

func raiseMakes(e *env) {
	e.apply(raise("key", 7, 100, 5))
	s := e.wantAt("key", 7, 100)
	if s.Token != 5 || !s.Owned || s.Used != 0 || s.Mode != 0 {
		e.Fatalf("a raised record is %+v", s)
	}
	e.apply(raise("plain", 1, 1, 0))
	if s := e.wantAt("plain", 1, 1); s.Owned {
		e.Fatalf("a record raised without a token is %+v", s)
	}
}

func raiseOnlyRaises(e *env) {
	e.apply(raise("key", 1, 100, 5))
	for _, lower := range []uint64{0, 1, 9, 99} {
		e.apply(raise("key", 1, lower, 6))
		if s := e.wantAt("key", 1, 100); s.Token != 5 {
			e.Fatalf("a raise to less changed the record to %+v", s)
		}
	}
	e.apply(raise("key", 1, 100, 7))
	if s := e.wantAt("key", 1, 100); s.Token != 7 {
		e.Fatalf("a raise to the same made the record %+v", s)
	}
	for _, n := range []uint64{101, 1000, 1 << 53, 1<<53 + 1, seqgen.MaxNumber} {
		e.apply(raise("key", 1, n, 8))
		e.wantAt("key", 1, n)
	}
}

func raiseByEpoch(e *env) {
	e.apply(raise("key", 2, 5, 1))
	e.apply(raise("key", 1, 100, 2))
	e.wantAt("key", 2, 5)
	e.apply(raise("key", 10, 1, 3))
	e.wantAt("key", 10, 1)
	e.apply(raise("key", 9, 100, 4))
	e.wantAt("key", 10, 1)
}

func raisedIsLowered(e *env) {
	e.apply(raise("key", 1, 100, 5))
	mine := seqgen.Grant{Epoch: 1, Token: 5}
	other := seqgen.Grant{Epoch: 1, Token: 4}
	e.apply(giveBack("key", other, 50)) // another has raised it since: nothing changes
	e.wantAt("key", 1, 100)
	e.apply(giveBack("key", mine, 50))
	e.wantAt("key", 1, 49)
	e.apply(giveBack("key", mine, 50))
	e.wantAt("key", 1, 49)
	e.wantVoids("key", 1)
}

func raiseOfASequence(e *env) {
	a := single("key", 10)
	e.grant(a, 1, 1, 10)
	e.apply(raise("key", 1, 50, 0))
	e.grant(a, 1, 1, 10) // the log stays
	e.grant(single("key", 1), 1, 51, 51)
	e.refuse(open("key", 1), seqgen.ErrMode) // and the mode
	e.wantVoids("key", 1)
}
