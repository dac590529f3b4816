package backpressure

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Class is the importance of a kind of business. The zero Class is the middle
// one, which also stands for calls without a class and for classes that are none of
// the five.
type Class int8

// The classes, from the last refused to the first.
const (
	ClassHighest Class = 2
	ClassHigh    Class = 1
	ClassMiddle  Class = 0
	ClassLow     Class = -1
	ClassLowest  Class = -2
)

const (
	classes    = 5
	userLevels = 128
	ranks      = classes * userLevels
)

// Valid says whether c is one of the five.
func (c Class) Valid() bool { return c >= ClassLowest && c <= ClassHighest }

// String returns the name of the class.
func (c Class) String() string {
	switch c {
	case ClassHighest:
		return "highest"
	case ClassHigh:
		return "high"
	case ClassMiddle:
		return "middle"
	case ClassLow:
		return "low"
	case ClassLowest:
		return "lowest"
	}
	return fmt.Sprintf("class %d", int8(c))
}

// A Priority decides who is refused first under overload: the lower class, and
// within a class the lower user level. The zero Priority is the middle of the
// middle class.
type Priority struct {
	Class Class
	// User is the sticky level of the user, -64 to 63: see [UserLevel]. All calls of
	// a task have the same, so that it is admitted to all of them or to none.
	User int8
}

// UserLevel returns the level of a user for the hour of the given time. It is the
// same in every process, and nothing the user does changes it: pass an identity
// that signing in again does not renew. In another hour it is another one, so that
// nobody is always the first to be refused. Decide it once, where a task enters the
// system, and hand it on by context and header. The empty user has level 0, the
// middle.
func UserLevel(user string, at time.Time) int8 {
	if user == "" {
		return 0
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d:%s", at.Unix()/3600, user)
	sum := h.Sum64()
	sum ^= sum >> 32
	sum *= 0x9e3779b97f4a7c15 // the upper bits of FNV-1a mix badly in short keys
	return int8(sum>>57) - userLevels/2
}

// rank is the place of a priority among all, 0 the most important.
func (p Priority) rank() int {
	if !p.Class.Valid() {
		p.Class = ClassMiddle
	}
	user := min(max(int(p.User), -userLevels/2), userLevels/2-1)
	return int(ClassHighest-p.Class)*userLevels + (userLevels/2 - 1 - user)
}

type priorityKey struct{}

// WithPriority returns a context with a priority, which gates, [Client] and whatever
// else takes the context inherit.
func WithPriority(ctx context.Context, p Priority) context.Context {
	return context.WithValue(ctx, priorityKey{}, p)
}

// PriorityFrom returns the priority of a context, and whether it has one. Without
// one it is the middle.
func PriorityFrom(ctx context.Context) (Priority, bool) {
	p, ok := ctx.Value(priorityKey{}).(Priority)
	return p, ok
}

// PriorityHeader is the HTTP header that carries a priority from service to
// service: "high;12". Do not let it in from outside: see HandlerOptions.Inherit.
const PriorityHeader = "Pawl-Priority"

// SetHeader writes the priority into a header.
func (p Priority) SetHeader(h http.Header) {
	if !p.Class.Valid() {
		p.Class = ClassMiddle
	}
	h.Set(PriorityHeader, p.Class.String()+";"+strconv.Itoa(int(p.User)))
}

// PriorityFromHeader reads the priority from a header, and says whether there is one
// that makes sense. Otherwise it is the middle.
func PriorityFromHeader(h http.Header) (Priority, bool) {
	name, level, ok := strings.Cut(h.Get(PriorityHeader), ";")
	user, err := strconv.ParseInt(level, 10, 8)
	if !ok || err != nil || user < -userLevels/2 || user >= userLevels/2 {
		return Priority{}, false
	}
	for c := ClassLowest; c <= ClassHighest; c++ {
		if c.String() == name {
			return Priority{c, int8(user)}, true
		}
	}
	return Priority{}, false
}
