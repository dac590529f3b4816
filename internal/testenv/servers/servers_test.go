package servers

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A process of its own is started with this variable to start a server and be
// killed; it writes the server's address and directory.
const helperEnv = "PAWL_TESTENV_HELPER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(helperEnv); kind != "" {
		start := StartRedis
		if kind == "postgres" {
			start = StartPostgres
		}
		s, err := start()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(s.Addr(), s.dir)
		select {}
	}
	os.Exit(m.Run())
}

func TestServersDieWithAKilledProcess(t *testing.T) {
	for kind, find := range map[string]func() (string, error){"redis": findRedis, "postgres": findPostgres} {
		t.Run(kind, func(t *testing.T) {
			if _, err := find(); err != nil {
				skip(t, err)
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), helperEnv+"="+kind)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			addr, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
			if conn, err := net.Dial("tcp", addr); err != nil {
				t.Fatal(err)
			} else {
				conn.Close()
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			err = waitFor(func() error {
				if conn, err := net.Dial("tcp", addr); err == nil {
					conn.Close()
					return errors.New("the server outlived its process")
				}
				if _, err := os.Stat(dir); err == nil {
					return errors.New("the directory outlived its process")
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	s, err := StartRedis()
	if err != nil {
		skip(t, err)
	}
	janitor := s.janitor
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := os.Stat(s.dir); err == nil {
		t.Error("the directory is left")
	}
	if janitor.ProcessState == nil {
		t.Error("the janitor was not reaped")
	}
}

func TestAServerThatCannotStartSaysWhy(t *testing.T) {
	if _, err := findRedis(); err != nil {
		skip(t, err)
	}
	started := time.Now()
	_, err := StartRedis("--no-such-option", "1")
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("error %v", err)
	}
	if errors.Is(err, ErrMissing) {
		t.Error("a server that fails passes for one that is missing")
	}
	if took := time.Since(started); took > startTimeout/2 {
		t.Errorf("noticed only after %v", took)
	}
}

func TestFindSaysWhatIsMissing(t *testing.T) {
	if _, _, err := find("pawl-no-such-program", "/nowhere/*"); !errors.Is(err, ErrMissing) {
		t.Errorf("error %v", err)
	}
}

func TestFindTakesTheNewestOfThePattern(t *testing.T) {
	root := t.TempDir()
	for _, v := range []string{"9", "15", "14"} {
		dir := filepath.Join(root, v, "bin")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		script := "#!/bin/sh\necho 'program " + v + ".3'\n"
		if err := os.WriteFile(filepath.Join(dir, "pawl-program"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path, version, err := find("pawl-program", filepath.Join(root, "*", "bin"))
	if err != nil || version != 1503 || !strings.Contains(path, "/15/") {
		t.Errorf("found %s, version %d, %v", path, version, err)
	}
}

func TestParseVersion(t *testing.T) {
	for s, want := range map[string]int{
		"Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64": 700,
		"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)":               1518,
		"no number": 0,
	} {
		if got := parseVersion(s); got != want {
			t.Errorf("%q: %d, want %d", s, got, want)
		}
	}
}

func TestSweepRemovesOnlyWhatIsNobodys(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(os.TempDir(), fmt.Sprintf("%s%d-1", dirPrefix, gone.Process.Pid))
	ours := filepath.Join(os.TempDir(), fmt.Sprintf("%s%d-1", dirPrefix, os.Getpid()))
	foreign := filepath.Join(os.TempDir(), dirPrefix+"notes")
	for _, dir := range []string{stale, ours, foreign} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sweep()
	for dir, want := range map[string]bool{stale: false, ours: true, foreign: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestRequired(t *testing.T) {
	for _, c := range []struct {
		ci, must string
		want     bool
	}{{"", "", false}, {"true", "", true}, {"", "1", true}, {"false", "0", false}} {
		t.Setenv("CI", c.ci)
		t.Setenv("PAWL_TEST_REQUIRE_SERVERS", c.must)
		if got := Required(); got != c.want {
			t.Errorf("CI=%q, PAWL_TEST_REQUIRE_SERVERS=%q: %v", c.ci, c.must, got)
		}
	}
}

func skip(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, ErrMissing) && !Required() {
		t.Skip(err)
	}
	t.Fatal(err)
}
