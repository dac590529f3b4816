package dlq

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// An Attempt is one try of a message that failed.
type Attempt struct {
	// At is by the clock of the process that tried, to the microsecond.
	At time.Time
	// Error is what the error said, word for word as far as [MaxError] goes. It is
	// personal data if the handler's errors are.
	Error string
	// Types are the types of the error and of those that it wraps, from the outside in,
	// at most 16.
	Types []string
	// Fingerprint tells kinds of failure apart: see Options.Fingerprint.
	Fingerprint string
	// Stack is that of a panic, or what the caller gave; at most [MaxStack] bytes.
	Stack string
	// Handler and Version are those of the options.
	Handler, Version string
}

const (
	// MaxError is the length in bytes to which the text of an error is cut.
	MaxError = 4 << 10
	// MaxStack is the length in bytes to which a stack is cut.
	MaxStack = 8 << 10

	maxTypes    = 16
	maxType     = 128
	maxTextual  = 128 // of Options.Handler and Options.Version
	maxWrapping = 64  // errors that are looked at in a chain
)

// A PanicError is the error of a handler that panicked.
type PanicError struct {
	value any
	stack []byte
	frame string // the function that panicked
}

func (e *PanicError) Error() string { return "the handler panicked: " + textOf(e.value) }

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// recovered makes an error of a panic's value. It is called by the deferred function
// that recovered it.
func recovered(value any) *PanicError {
	e := &PanicError{value: value, stack: debug.Stack()}
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	panicked := false
	for {
		f, more := frames.Next()
		runtimes := strings.HasPrefix(f.Function, "runtime.")
		if panicked && !runtimes {
			e.frame = f.Function
			return e
		}
		panicked = panicked || runtimes
		if !more {
			return e
		}
	}
}

// errExited is the failure of a handler that ended its goroutine.
var errExited = errors.New("dlq: the handler ended its goroutine")

// attempt describes an error. It looks at an error once, and no error can make it
// panic, run long or use much memory, other than in its own Error method.
func (c *core) attempt(err error, stack []byte) Attempt {
	a := Attempt{
		At: time.Now().UTC().Truncate(time.Microsecond), Error: textOf(err), Types: typesOf(err), Handler: c.opts.Handler, Version: c.opts.Version,
	}
	frame := ""
	if p, ok := err.(*PanicError); ok {
		stack, frame = p.stack, p.frame
	}
	a.Stack = cut(string(stack[:min(len(stack), MaxStack)]), MaxStack)
	a.Fingerprint = c.fingerprint(err, &a, frame)
	return a
}

// fingerprint is the option's, if it has one that can be used.
func (c *core) fingerprint(err error, a *Attempt, frame string) (print string) {
	defer func() {
		if recover() != nil {
			print = defaultPrint(a, frame)
		}
	}()
	if c.opts.Fingerprint != nil {
		if own := c.opts.Fingerprint(err); own != "" {
			return printOf(own)
		}
	}
	return defaultPrint(a, frame)
}

// defaultPrint is of the types, the place of a panic, and the text without what
// changes from one failure to the next.
func defaultPrint(a *Attempt, frame string) string {
	return printOf(strings.Join(a.Types, "\x00") + "\x00\x00" + frame + "\x00" + normal(a.Error))
}

func printOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// normal is a text without what changes from one failure to the next: words with
// digits (numbers, IDs, addresses, times) and what stands in quotes.
func normal(text string) string {
	text = text[:min(len(text), 1024)]
	var out strings.Builder
	for i := 0; i < len(text); {
		c := text[i]
		if c == '"' || c == '`' {
			if n := strings.IndexByte(text[i+1:], c); n >= 0 {
				out.WriteString(`""`)
				i += n + 2
				continue
			}
		}
		if !wordByte(c) {
			out.WriteByte(c)
			i++
			continue
		}
		end, digits := i, false
		for end < len(text) && wordByte(text[end]) {
			digits = digits || text[end] >= '0' && text[end] <= '9'
			end++
		}
		if digits {
			out.WriteByte('#')
		} else {
			out.WriteString(text[i:end])
		}
		i = end
	}
	return out.String()
}

func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// textOf is what an error or another panic's value says, cut.
func textOf(value any) (s string) {
	defer func() {
		if recover() != nil {
			s = cut(fmt.Sprintf("a value of type %T whose text cannot be had", value), MaxError)
		}
	}()
	switch v := value.(type) {
	case nil:
		return "no error was given"
	case error:
		return cut(v.Error(), MaxError)
	case string:
		return cut(v, MaxError)
	}
	return cut(fmt.Sprint(value), MaxError)
}

// cut shortens a text, and makes it valid UTF-8 without NUL.
func cut(text string, most int) string {
	cutOff := len(text) > most
	if cutOff {
		text = text[:most]
	}
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > most { // what was replaced is longer
		text = text[:most]
	}
	if cutOff || len(text) == most {
		text = strings.TrimRight(text, "\uFFFD")
		text = strings.ToValidUTF8(text, "")
	}
	return text
}

// typesOf are the types of a chain, outermost first.
func typesOf(err error) (types []string) {
	walk(err, func(e error) (more bool) {
		types = append(types, cut(fmt.Sprintf("%T", e), maxType))
		return len(types) < maxTypes
	})
	return types
}

// kindOf is what may be logged of an error that a function of the options made: its text
// may hold personal data.
func kindOf(err error) string { return strings.Join(typesOf(err), ": ") }

// walk visits an error and those that it wraps, the nearest first, until there are no
// more, enough were visited, or visit has found what it looks for. Unlike errors.As it
// ends in a chain that leads back to itself, and calls no method that may panic.
func walk(err error, visit func(error) (more bool)) {
	queue := []error{err}
	for looked := 0; len(queue) > 0 && looked < maxWrapping; looked++ {
		e := queue[0]
		queue = queue[1:]
		if e == nil {
			continue
		}
		if !visit(e) {
			return
		}
		queue = append(queue, unwrapped(e)...)
	}
}

// unwrapped are the errors that an error wraps, at most as many as are looked at; none
// if it panics.
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

// failure makes of an attempt what a store keeps.
func (a *Attempt) failure() Failure {
	b := []byte{1}
	for _, s := range []string{a.Error, a.Handler, a.Version, a.Stack} {
		b = appendText(b, s)
	}
	b = append(b, byte(len(a.Types)))
	for _, t := range a.Types {
		b = appendText(b, t)
	}
	return Failure{At: a.At, Fingerprint: a.Fingerprint, Detail: b}
}

// attemptOf is the reverse.
func attemptOf(f Failure) Attempt {
	r := reader{rest: f.Detail}
	a := Attempt{At: f.At, Fingerprint: f.Fingerprint}
	version := r.byte()
	a.Error, a.Handler, a.Version, a.Stack = r.text(), r.text(), r.text(), r.text()
	for range r.number(maxTypes) {
		a.Types = append(a.Types, r.text())
	}
	if version != 1 || r.bad {
		return Attempt{At: f.At, Fingerprint: f.Fingerprint, Error: "what is stored of this attempt is not of a known version"}
	}
	return a
}
