package seed

import (
	"slices"
	"strings"
	"testing"
)

func TestSeeds(t *testing.T) {
	t.Setenv(Variable, "")
	if got := List(3); !slices.Equal(got, []uint64{1, 2, 3}) || One() != 1 {
		t.Errorf("an ordinary run takes %v and %d", got, One())
	}
	t.Setenv(Variable, "18446744073709551615")
	if got := List(3); !slices.Equal(got, []uint64{1<<64 - 1}) || One() != 1<<64-1 {
		t.Errorf("a hunt takes %v and %d", got, One())
	}
	if got := Repeat(One()); got != "repeat with PAWL_SEED=18446744073709551615" {
		t.Error(got)
	}
}

func TestSeedThatIsNone(t *testing.T) {
	for _, s := range []string{"-1", "x", "18446744073709551616"} {
		t.Setenv(Variable, s)
		func() {
			defer func() {
				if said, _ := recover().(string); !strings.Contains(said, Variable) {
					t.Errorf("%q: %q", s, said)
				}
			}()
			List(1)
		}()
	}
}
