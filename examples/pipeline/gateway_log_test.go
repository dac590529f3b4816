package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

func openLog(t *testing.T, path string, anew bool) *replyLog {
	t.Helper()
	l, err := openReplyLog(path, anew, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.file.Close() })
	return l
}

func wantLog(t *testing.T, path, want string) {
	t.Helper()
	if text, err := os.ReadFile(path); err != nil || string(text) != want {
		t.Errorf("the log has %q, %v, want %q", text, err, want)
	}
}

func TestReplyLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("a\tk\nb\tk\nto"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readReplies(path); err == nil {
		t.Error("a torn line was read")
	}
	l := openLog(t, path, false)
	wantLog(t, path, "a\tk\nb\tk\n")
	soon := time.Now().Add(time.Minute)
	for _, operation := range []string{"c", "a"} { // a again: that is not the gateway's business
		if err := l.perform(operation, "k", soon); err != nil {
			t.Error(err)
		}
	}
	if err := l.perform("late", "k", time.Now().Add(-time.Nanosecond)); !errors.Is(err, errTooLate) {
		t.Errorf("after its deadline: %v", err)
	}
	wantLog(t, path, "a\tk\nb\tk\nc\tk\na\tk\n")
	for operation, want := range map[string]bool{"a": true, "b": true, "c": true, "late": false, "to": false} {
		found, age, err := l.find(operation)
		if found != want || err != nil || operation == "b" && age < time.Hour || operation == "c" && age > time.Minute {
			t.Errorf("%s: found %v, %v old, %v", operation, found, age, err)
		}
	}
	list, err := readReplies(path)
	if err != nil || fmt.Sprint(list) != "[{a k} {b k} {c k} {a k}]" {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := readReplies(path + "-missing"); len(list) > 0 || err != nil {
		t.Errorf("no log: %v, %v", list, err)
	}
	l.file.Close()
	openLog(t, path, true)
	wantLog(t, path, "")
}

// A file that fails takes nothing more, and nothing that it may not have is found.
func TestReplyLogFails(t *testing.T) {
	l := openLog(t, filepath.Join(t.TempDir(), "log"), false)
	l.file.Close()
	for range 2 {
		if err := l.perform("a", "k", time.Now().Add(time.Minute)); !errors.Is(err, os.ErrClosed) {
			t.Errorf("perform: %v", err)
		}
	}
	if found, _, err := l.find("a"); found || err == nil {
		t.Errorf("found %v, %v", found, err)
	}
}

func TestReplyLogInManyGoroutines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := openLog(t, path, false)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			operation := fmt.Sprint(i)
			if err := l.perform(operation, "k", time.Now().Add(time.Minute)); err != nil {
				t.Error(err)
			}
			if found, _, err := l.find(operation); !found || err != nil {
				t.Errorf("%s: found %v, %v", operation, found, err)
			}
		})
	}
	all.Wait()
	if list, err := readReplies(path); len(list) != 200 || err != nil {
		t.Errorf("%d lines, %v", len(list), err)
	}
}

// Two gateways never have one log: the second waits, or gives up when its pipeline has
// gone.
func TestReplyLogIsLocked(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no lock there: see lock_other.go")
	}
	path := filepath.Join(t.TempDir(), "log")
	first := openLog(t, path, false)
	gone := make(chan struct{})
	close(gone)
	if _, err := openReplyLog(path, true, gone); !errors.Is(err, errGivenUp) {
		t.Errorf("given up: %v", err)
	}
	second := make(chan *replyLog)
	go func() {
		l, err := openReplyLog(path, false, nil)
		if err != nil {
			t.Error(err)
		}
		second <- l
	}()
	if err := first.perform("a", "k", time.Now().Add(time.Minute)); err != nil {
		t.Error(err)
	}
	select {
	case <-second:
		t.Fatal("two have the log")
	case <-time.After(20 * time.Millisecond):
	}
	first.file.Close()
	l := <-second
	defer l.file.Close()
	if found, _, err := l.find("a"); !found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
}
