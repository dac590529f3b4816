//go:build !unix

package servers

import (
	"fmt"
	"os/exec"
)

type account struct{ uid, gid uint32 }

func plainAccount() (*account, error) {
	return nil, fmt.Errorf("this system is not a Unix: %w", ErrMissing)
}

func detach(*exec.Cmd, *account) {}

func alive(int) bool { return true }
