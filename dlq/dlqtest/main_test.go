package dlqtest_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain lets more tests run at once than there are processors: those on the real
// clock sleep most of the time.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
