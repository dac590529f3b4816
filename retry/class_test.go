package retry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/retry"
)

type timeoutError struct{ timeout bool }

func (e timeoutError) Error() string { return "from another library" }
func (e timeoutError) Timeout() bool { return e.timeout }

// likeSchema says through Is that it is like ErrSchema.
type likeSchema []string // cannot be compared

func (likeSchema) Error() string        { return "like" }
func (likeSchema) Is(target error) bool { return target == retry.ErrSchema }

func TestClassify(t *testing.T) {
	syscallError := func(call string, no syscall.Errno) error {
		return &net.OpError{Op: call, Net: "tcp", Err: os.NewSyscallError(call, no)}
	}
	status := func(code int) error { return retry.Status(code, nil) }
	var number int
	syntax := json.Unmarshal([]byte("{"), &number)
	badType := json.Unmarshal([]byte(`"seven"`), &number)
	truncated := json.NewDecoder(bytes.NewReader([]byte("{"))).Decode(&number)
	for _, tt := range []struct {
		name string
		err  error
		want retry.Class
	}{
		{"nil", nil, retry.ClassUnknown},
		{"anything", errors.New("anything"), retry.ClassUnknown},
		{"an error that cannot be compared", uncomparable{"a"}, retry.ClassUnknown},

		{"timeout", timeoutError{true}, retry.ClassTransient},
		{"no timeout", timeoutError{false}, retry.ClassUnknown},
		{"deadline of an attempt", context.DeadlineExceeded, retry.ClassTransient},
		{"deadline of a connection", os.ErrDeadlineExceeded, retry.ClassTransient},
		{"name server timed out", &net.DNSError{IsTimeout: true}, retry.ClassTransient},
		{"reset", syscallError("read", syscall.ECONNRESET), retry.ClassTransient},
		{"refused", syscallError("connect", syscall.ECONNREFUSED), retry.ClassTransient},
		{"aborted", syscallError("accept", syscall.ECONNABORTED), retry.ClassTransient},
		{"broken pipe", syscallError("write", syscall.EPIPE), retry.ClassTransient},
		{"timed out", syscallError("read", syscall.ETIMEDOUT), retry.ClassTransient},
		{"another system error", syscallError("open", syscall.EACCES), retry.ClassUnknown},
		{"cut off", io.ErrUnexpectedEOF, retry.ClassTransient},
		{"cut off JSON", truncated, retry.ClassTransient},
		{"end", io.EOF, retry.ClassUnknown},
		{"408", status(408), retry.ClassTransient},
		{"425", status(425), retry.ClassTransient},
		{"502", status(502), retry.ClassTransient},
		{"503", status(503), retry.ClassTransient},
		{"504", status(504), retry.ClassTransient},

		{"429", status(429), retry.ClassThrottled},
		{"asked to wait", retry.After(err1, time.Second), retry.ClassThrottled},
		{"asked to wait for nothing", retry.After(err1, 0), retry.ClassUnknown},
		{"503 that asks to wait", retry.After(status(503), time.Second), retry.ClassTransient},
		{"permanent that asks to wait", retry.After(retry.Permanent(err1), time.Second), retry.ClassPermanent},

		{"invalid payload", fmt.Errorf("message: %w", retry.ErrPayload), retry.ClassPermanent},
		{"unknown schema", fmt.Errorf("version 7: %w", retry.ErrSchema), retry.ClassPermanent},
		{"like unknown schema", likeSchema{}, retry.ClassPermanent},
		{"JSON that is none", syntax, retry.ClassPermanent},
		{"JSON of another type", badType, retry.ClassPermanent},
		{"cancelled by somebody", context.Canceled, retry.ClassPermanent},
		{"400", status(400), retry.ClassPermanent},
		{"401", status(401), retry.ClassPermanent},
		{"403", status(403), retry.ClassPermanent},
		{"404", status(404), retry.ClassPermanent},
		{"422", status(422), retry.ClassPermanent},
		{"501", status(501), retry.ClassPermanent},
		{"505", status(505), retry.ClassPermanent},
		{"409", status(409), retry.ClassUnknown},
		{"423", status(423), retry.ClassUnknown},
		{"500", status(500), retry.ClassUnknown},
		{"599", status(599), retry.ClassUnknown},

		{"marked permanent", retry.Permanent(timeoutError{true}), retry.ClassPermanent},
		{"marked transient", retry.Transient(status(403)), retry.ClassTransient},
		{"marked throttled", retry.Throttled(status(403)), retry.ClassThrottled},
		{"a mark below", fmt.Errorf("crm: %w", retry.Permanent(err1)), retry.ClassPermanent},
		{"a mark below a known error", fmt.Errorf("%w: %w", context.DeadlineExceeded, retry.Permanent(err1)), retry.ClassPermanent},
		{"the outer of two marks", retry.Transient(retry.Permanent(err1)), retry.ClassTransient},
		{"joined", errors.Join(err1, status(429), status(503)), retry.ClassThrottled},
		{"joined with a mark", errors.Join(status(503), retry.Permanent(err1)), retry.ClassPermanent},
	} {
		if got := retry.Classify(tt.err); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

type uncomparable []string

func (u uncomparable) Error() string { return u[0] }

// A function of the caller's decides, except where the error is marked, and may
// leave the rest to Classify. What the server asked for holds in any case.
func TestOwnClassify(t *testing.T) {
	p := policy(t, retry.Options{MaxAttempts: 1, Classify: func(err error) retry.Class {
		switch {
		case errors.Is(err, err1):
			return retry.ClassThrottled
		case errors.Is(err, err2):
			return 77
		case errors.Is(err, err3):
			return retry.ClassUnknown
		}
		return retry.Classify(err)
	}})
	for _, tt := range []struct {
		err  error
		want retry.Class
	}{
		{err1, retry.ClassThrottled},
		{err2, retry.ClassPermanent}, // a class that there is not stops
		{err3, retry.ClassUnknown},
		{retry.After(err3, 1), retry.ClassThrottled},
		{retry.ErrPayload, retry.ClassPermanent},
		{retry.Permanent(err1), retry.ClassPermanent},
		{fmt.Errorf("crm: %w", retry.Transient(err1)), retry.ClassTransient},
	} {
		e := stopped(t, retry.Do(t.Context(), p, func(context.Context) error { return tt.err }))
		if got := e.Attempts[0].Class; got != tt.want {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.want)
		}
	}
}

func TestMarksKeepTheError(t *testing.T) {
	for _, err := range []error{retry.Permanent(err1), retry.Transient(err1), retry.Throttled(err1), retry.After(err1, 1)} {
		if !errors.Is(err, err1) || err.Error() != "e1" {
			t.Errorf("%v", err)
		}
	}
	for _, err := range []error{retry.Permanent(nil), retry.Transient(nil), retry.Throttled(nil), retry.After(nil, 1)} {
		if err != nil {
			t.Errorf("nil became %v", err)
		}
	}
}

func TestWords(t *testing.T) {
	for c, want := range map[retry.Class]string{
		retry.ClassUnknown: "unknown", retry.ClassTransient: "transient", retry.ClassThrottled: "throttled",
		retry.ClassPermanent: "permanent", 9: "class 9",
	} {
		if c.String() != want {
			t.Errorf("got %q, want %q", c, want)
		}
	}
	if got := retry.StopReason(99).String(); got != "reason 99" {
		t.Error(got)
	}
}
