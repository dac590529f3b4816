package order

import "fmt"

// The names of answers, states and steps, as they appear in logs and metrics.

// String returns the answer's name.
func (a Arrived) String() string {
	return name("answer", uint8(a), "", "buffered", "duplicate", "conflict", "late", "stale epoch", "full", "too far", "unordered")
}

// String returns the state's name.
func (s State) String() string {
	return name("state", uint8(s), "unknown", "delivered", "void", "skipped", "late", "settled", "buffered", "parked", "unordered", "missing")
}

// String returns the reason's name; the zero one, of a gap that is open, is "none".
func (r Reason) String() string {
	return name("reason", uint8(r), "none", "timeout", "dropped", "abandoned", "resolved")
}

// String returns the resolution's name; the zero one is "unresolved".
func (r Resolution) String() string {
	return name("resolution", uint8(r), "unresolved", "resent", "lost", "ignore")
}

// String returns the kind's name.
func (k Kind) String() string {
	return name("kind", uint8(k), "", "deliver", "void", "skip", "late", "retry late", "park late", "retry", "park", "wait", "release",
		"extend", "resume", "drop", "resolve", "report as delivered", "forget")
}

func name(what string, n uint8, names ...string) string {
	if int(n) < len(names) && names[n] != "" {
		return names[n]
	}
	return fmt.Sprintf("%s %d", what, n)
}
