package watchdogtest

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/backpressure/watchdog"
)

// flawVariable names the flaw that a child process tests.
const flawVariable = "PAWL_WATCHDOGTEST_FLAW"

// TestSuiteNoticesFlaws runs, for every flaw, the subtest that must notice it. A
// failing subtest fails its parents, so it runs in a child process.
func TestSuiteNoticesFlaws(t *testing.T) {
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
			Run(t, Config{
				New:    func(*testing.T) watchdog.Store { return f.store() },
				Bubble: true,
			})
			return
		}
	}
	t.Skip("runs in a child process of TestSuiteNoticesFlaws")
}

// TestUnalteredStore shows that the flawed stores fail for their flaws alone, in
// the form in which stores on a simulated server are tested.
func TestUnalteredStore(t *testing.T) {
	Run(t, Config{
		New:   func(*testing.T) watchdog.Store { return altered(func(*alteration) {})() },
		Sleep: time.Sleep,
	})
}
