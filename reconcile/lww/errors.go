package lww

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// Errors that a caller branches on. With each of them nothing was changed.
var (
	// ErrInvalid says that an argument is outside its range.
	ErrInvalid = errors.New("lww: invalid argument")
	// ErrFull says that there is no room. Nothing was dropped to make some. What a
	// merge brought is still where it came from: make room and merge it again.
	ErrFull = errors.New("lww: no room")
	// ErrOverflow says that the Lamport clock stands at 2^64-1, so that no write can
	// be stamped above what there is. Reading and merging go on.
	ErrOverflow = errors.New("lww: the Lamport clock is at its end")
	// ErrRegion says that a write comes from a region that is not one of the known.
	ErrRegion = errors.New("lww: unknown region")
	// ErrNotFound says that what was asked for is not there.
	ErrNotFound = errors.New("lww: not found")
	// ErrEncoding says that bytes are not what this package has written: damaged, cut
	// off, or of a later version.
	ErrEncoding = errors.New("lww: unreadable bytes")
)

// A SizeError says that a value is larger than Options.MaxValue. It matches
// ErrInvalid. Nothing was changed.
type SizeError struct {
	Key         string // as a short hash
	Size, Limit int    // bytes
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("%v: value of %d bytes for key %s, at most %d; nothing was written or merged", ErrInvalid, e.Size, e.Key, e.Limit)
}

// Unwrap returns ErrInvalid.
func (e *SizeError) Unwrap() error { return ErrInvalid }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

func unreadable(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrEncoding}, args...)...)
}

// short is how keys appear in errors: they may be personal data.
func short(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:6])
}
