package testenv

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/pawl-go/pawl/internal/testenv/servers"
)

// MainWithPostgres is the TestMain of a package whose tests and examples share a
// server, since an example has no testing.TB to start one with; it does not return.
// Without a server the tests skip, each with the reason, and the examples are left
// out. Sixteen tests run at once, because they wait for leases and not for the
// processor.
func MainWithPostgres(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "16")
	os.Exit(runWithPostgres(m))
}

func runWithPostgres(m *testing.M) int {
	if os.Getenv("PAWL_TEST_POSTGRES") != "" {
		return m.Run()
	}
	server, err := servers.StartPostgres(servers.ManyConnections)
	switch {
	case errors.Is(err, servers.ErrMissing) && !servers.Required():
		if flag.Lookup("test.skip").Value.String() == "" {
			_ = flag.Set("test.skip", "^Example")
		}
		return m.Run()
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer server.Close()
	os.Setenv("PAWL_TEST_POSTGRES", server.URL())
	return m.Run()
}
