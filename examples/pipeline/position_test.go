package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/order"
)

func TestPositions(t *testing.T) {
	p := func(lane string, epoch, number uint64) position {
		return position{lane, order.Position{Epoch: epoch, Number: number}}
	}
	for want, list := range map[string][]position{
		"":                      nil,
		"a:1:7":                 {p("a", 1, 7)},
		"a:1:7-9,12,12":         {p("a", 1, 7), p("a", 1, 8), p("a", 1, 9), p("a", 1, 12), p("a", 1, 12)},
		"a:1:7,a:2:8,b:2:9,8":   {p("a", 1, 7), p("a", 2, 8), p("b", 2, 9), p("b", 2, 8)},
		"a%2F-%3A%2C%C3%A4:0:1": {p("a/-:,ä", 0, 1)},
		"a:1:9223372036854775806-9223372036854775807": {p("a", 1, order.MaxNumber-1), p("a", 1, order.MaxNumber)},
	} {
		if got := writePositions(list); got != want {
			t.Errorf("%v is written %q, want %q", list, got, want)
		}
		if got, err := readPositions(want); err != nil || !slices.Equal(got, list) {
			t.Errorf("%q is read %v, %v", want, got, err)
		}
	}
	for _, bad := range []string{
		",", "7", "a", "a:1", "a:1:", "a:1:0", "a:1:2-1", "a:1:-2", "a:x:1", "a:1:1:1", "%:1:1", ":1:1", "a:1:1,",
		"a:1:1-9223372036854775807", "a:1:9223372036854775808", "a:-1:1", "a:1:1-60000,1-60000",
	} {
		if got, err := readPositions(bad); err == nil {
			t.Errorf("%q is read %v", bad, got[:min(3, len(got))])
		}
	}
}

// Positions and events that do not match are not guessed at.
func TestNumbered(t *testing.T) {
	source := sourceOf{n: 2}
	list, _ := readPositions("a:1:7-8")
	events, err := numbered{source, list}.Decode(nil)
	if err != nil || len(events) != 2 {
		t.Fatalf("%v, %v", events, err)
	}
	at, err := positionOf(inbox.Record{Event: events[1]})
	if err != nil || at != list[1] || !strings.Contains(string(events[1].Context), `{"n":1}`) {
		t.Errorf("%v, %v, %s", at, err, events[1].Context)
	}
	if _, err := positionOf(inbox.Record{Event: inbox.Event{Context: []byte(`{"n":1}`)}}); err == nil {
		t.Error("an event without a position has one")
	}
	for _, n := range []int{0, 1, 3} {
		if events, err := (numbered{source, slices.Repeat(list, 2)[:n]}).Decode(nil); err == nil || len(events) > 0 {
			t.Errorf("%d positions: %v, %v", n, events, err)
		}
	}
	source.err = fmt.Errorf("broken off") // what is there has the first positions
	if events, err := (numbered{source, slices.Repeat(list, 2)}).Decode(nil); err != source.err || len(events) != 2 {
		t.Errorf("broken off: %v, %v", events, err)
	}
}

type sourceOf struct {
	inbox.Source
	n   int
	err error
}

func (s sourceOf) Decode([]byte) (events []inbox.Event, err error) {
	for i := range s.n {
		events = append(events, inbox.Event{ID: fmt.Sprint(i), Context: fmt.Appendf(nil, `{"n":%d}`, i)})
	}
	return events, s.err
}
