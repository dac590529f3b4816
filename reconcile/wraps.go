package reconcile

import (
	"reflect"
	"slices"
)

// Errors of the caller's functions are looked into by hand: errors.Is and errors.As do not
// return from a chain that is a circle, and call methods that may panic.

// maxWrapping is how many errors in an error are looked at.
const maxWrapping = 64

// wraps finds an error in another, as it is or by its type, in the order of errors.As: the
// outer one first, and of several that are wrapped side by side all of the first.
func wraps(err error, found func(error) bool) bool {
	stack := []error{err}
	for looked := 0; len(stack) > 0 && looked < maxWrapping; looked++ {
		e := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if e == nil {
			continue
		}
		if found(e) {
			return true
		}
		inner := unwrapped(e)
		slices.Reverse(inner)
		stack = append(stack, inner...)
	}
	return false
}

// unwrapped are the errors that an error wraps; none if it panics.
func unwrapped(err error) (inner []error) {
	defer func() {
		if recover() != nil {
			inner = nil
		}
	}()
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return []error{e.Unwrap()}
	case interface{ Unwrap() []error }:
		all := e.Unwrap()
		return append([]error(nil), all[:min(len(all), maxWrapping)]...)
	}
	return nil
}

// isError finds one of our sentinels, which are pointers: another type is another error.
func isError(err, sentinel error) bool {
	return wraps(err, func(e error) bool {
		return reflect.TypeOf(e) == reflect.TypeOf(sentinel) && e == sentinel
	})
}
