package forecast

import (
	"errors"
	"fmt"
)

// Errors that a caller branches on. Nothing was forecast or advised.
var (
	// ErrInvalid says that an option or an argument is outside its range.
	ErrInvalid = errors.New("forecast: invalid argument")
	// ErrTooShort says that the series has fewer values than any method needs. More
	// measurements cure it.
	ErrTooShort = errors.New("forecast: series too short")
	// ErrConstant says that all values are the same. Such a series has no variance
	// to forecast from, and often comes from a gauge that is stuck.
	ErrConstant = errors.New("forecast: constant series")
	// ErrNotFinite says that the series holds a NaN or an infinity, or values so
	// large that their forecast would be one.
	ErrNotFinite = errors.New("forecast: not a finite number")
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

func tooShort(have, need int, why string) error {
	return fmt.Errorf("%w: %d values, %s needs %d; nothing was forecast", ErrTooShort, have, why, need)
}

func beyond() error {
	return fmt.Errorf("%w: the forecast is beyond the largest float64; measure in a larger unit", ErrNotFinite)
}
