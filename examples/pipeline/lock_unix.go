//go:build unix

package main

import (
	"os"
	"syscall"
	"time"
)

// lock locks a file for this process, and waits as long as another has it. The system
// frees it when the process ends, however it ends.
func lock(f *os.File, given <-chan struct{}) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != syscall.EWOULDBLOCK && err != syscall.EINTR {
			return err
		}
		select {
		case <-given:
			return errGivenUp
		case <-time.After(5 * time.Millisecond):
		}
	}
}
