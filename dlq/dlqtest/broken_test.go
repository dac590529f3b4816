package dlqtest

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/dlq"
)

// flawVariable names the flaw that a child process tests.
const flawVariable = "PAWL_DLQTEST_FLAW"

// TestSuiteNoticesFlaws runs, for every flaw, the subtest that must notice it. A
// failing subtest fails its parents, so it runs in a child process.
func TestSuiteNoticesFlaws(t *testing.T) {
	t.Parallel()
	if os.Getenv(flawVariable) != "" {
		t.Skip("this is the child")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range flaws {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			group, subtest, _ := strings.Cut(f.noticed, "/")
			child := exec.Command(self, "-test.run=^TestFlawedStore$/^"+group+"$/^"+subtest+"$", "-test.count=1")
			child.Env = append(os.Environ(), flawVariable+"="+f.name)
			out, err := child.CombinedOutput()
			if err == nil {
				t.Fatalf("the suite passes a store with this flaw:\n%s", out)
			}
			if !bytes.Contains(out, []byte("--- FAIL: TestFlawedStore/"+f.noticed+" ")) {
				t.Fatalf("the child failed, and not in %s: %v\n%s", f.noticed, err, out)
			}
			if bytes.Contains(out, []byte("panic: ")) {
				t.Fatalf("the child panicked:\n%s", out)
			}
			t.Logf("%s", out)
		})
	}
}

// TestFlawedStore is what the child runs.
func TestFlawedStore(t *testing.T) {
	name := os.Getenv(flawVariable)
	for _, f := range flaws {
		if f.name == name {
			Run(t, flawed(f.set))
			return
		}
	}
	t.Skip("runs in a child process of TestSuiteNoticesFlaws")
}

// TestAlterationWithoutAFlaw shows that the flawed stores fail for their flaws
// alone.
func TestAlterationWithoutAFlaw(t *testing.T) {
	t.Parallel()
	Run(t, flawed(func(*alteration) {}))
}

// TestOnTheRealClock is the form in which stores on real servers are tested.
func TestOnTheRealClock(t *testing.T) {
	t.Parallel()
	Run(t, Config{New: func(*testing.T) dlq.Store { return dlq.NewMemory() }})
}

func flawed(set func(*alteration)) Config {
	return Config{
		New: func(*testing.T) dlq.Store {
			a := &alteration{Memory: dlq.NewMemory()}
			set(a)
			return a
		},
		Reopen: func(_ *testing.T, s dlq.Store) dlq.Store {
			if a := s.(*alteration); a.reopen != nil {
				a.reopen()
			}
			return s
		},
		Bubble: true,
	}
}
