package retry

import "context"

// AttemptFrom returns the number of the attempt that ctx belongs to: 2 for the
// first retry, and 1 where there is no mark. Send it along in a header, and the
// server can pass it on with [WithAttempt]; log it; or leave out on a retry what
// is not worth repeating.
func AttemptFrom(ctx context.Context) int {
	if m, ok := ctx.Value(attemptKey{}).(*marked); ok {
		return m.attempt
	}
	return 1
}

// WithAttempt returns a context that belongs to attempt n of a caller's, such as
// one that a request's header names. From 2 on, a [Do] with it leaves the retries
// to that caller; less than 1 is taken as 1.
func WithAttempt(ctx context.Context, n int) context.Context {
	return &marked{ctx, max(n, 1)}
}

type attemptKey struct{}

// marked is a context of its own, rather than context.WithValue, to be one
// object.
type marked struct {
	context.Context
	attempt int
}

func (m *marked) Value(key any) any {
	if key == (attemptKey{}) {
		return m
	}
	return m.Context.Value(key)
}
