// Package authz asks the application whether a person may do something, the same
// way for every primitive that has operators.
//
// A function that is nil, fails, panics or names nobody has refused: nothing is done
// that nobody answers for.
package authz

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"unicode/utf8"
)

// ErrUnauthorized says that an action was refused, and not begun.
var ErrUnauthorized = errors.New("not authorized, nothing was done")

// MaxActor is the length in bytes of the longest name of an actor.
const MaxActor = 256

// Check asks the function whether the action may be done, and returns who does it:
// 1 to [MaxActor] bytes of UTF-8 without NUL. Any other answer is a refusal, whose
// error wraps [ErrUnauthorized] and the function's own. What a panic said is not in
// the error, since it may hold anything; a [*Panic] has the stack.
func Check[A any](ctx context.Context, f func(context.Context, A) (string, error), action A) (string, error) {
	if f == nil {
		return "", fmt.Errorf("%w: Authorize is nil", ErrUnauthorized)
	}
	actor, err := ask(ctx, f, action)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrUnauthorized, err)
	case actor == "":
		return "", fmt.Errorf("%w: the authorize function named no actor", ErrUnauthorized)
	case len(actor) > MaxActor:
		return "", fmt.Errorf("%w: the authorize function named an actor of %d bytes, at most %d", ErrUnauthorized, len(actor), MaxActor)
	case !utf8.ValidString(actor) || strings.IndexByte(actor, 0) >= 0:
		return "", fmt.Errorf("%w: the authorize function named an actor that is not UTF-8 without NUL", ErrUnauthorized)
	}
	return actor, nil
}

// A Panic is the error of a function that panicked.
type Panic struct{ Stack []byte }

func (*Panic) Error() string { return "the authorize function panicked" }

func ask[A any](ctx context.Context, f func(context.Context, A) (string, error), action A) (actor string, err error) {
	defer func() {
		if recover() != nil {
			actor, err = "", &Panic{debug.Stack()}
		}
	}()
	return f(ctx, action)
}
