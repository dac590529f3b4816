package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/order"
)

// positionHeader says where the sender put the events of a body: one position for
// each event, in the order of the body, separated by commas. A position is
//
//	<ordering key>:<epoch>:<number>
//
// with the key escaped as in a query. A part without colons has the key and the
// epoch of the one before, and numbers that follow each other are written as a
// range, so a body of five events of one person takes no more than
//
//	meta%2F15550008000%2F15550003001:1:7-11
//
// The provider's signature does not cover this header: a sender that is not in the
// same program would sign its numbers, too.
const positionHeader = "X-Pawl-Position"

// maxPositions is more than a body of the largest size has events.
const maxPositions = 1 << 16

// A position is a number in a lane; the lane is an ordering key. The zero position
// is that of an event that nobody numbered.
type position struct {
	Lane string
	order.Position
}

// writePositions returns the header for the events of a body.
func writePositions(list []position) string {
	var b strings.Builder
	for i := 0; i < len(list); {
		p := list[i]
		if i > 0 {
			b.WriteByte(',')
		}
		if i == 0 || list[i-1].Lane != p.Lane || list[i-1].Epoch != p.Epoch {
			fmt.Fprintf(&b, "%s:%d:", url.QueryEscape(p.Lane), p.Epoch)
		}
		end := i + 1
		for end < len(list) && list[end].Lane == p.Lane && list[end].Epoch == p.Epoch && list[end].Number == list[end-1].Number+1 {
			end++
		}
		b.WriteString(strconv.FormatUint(p.Number, 10))
		if end > i+1 {
			fmt.Fprintf(&b, "-%d", list[end-1].Number)
		}
		i = end
	}
	return b.String()
}

var errPositions = errors.New(positionHeader + ": not a list of positions")

// readPositions is the other side of writePositions.
func readPositions(header string) (list []position, err error) {
	if header == "" {
		return nil, nil
	}
	var p position
	for part := range strings.SplitSeq(header, ",") {
		numbers := part
		if key, rest, ok := strings.Cut(part, ":"); ok {
			epoch, rest, _ := strings.Cut(rest, ":")
			if p.Lane, err = url.QueryUnescape(key); err != nil {
				return nil, errPositions
			}
			if p.Epoch, err = strconv.ParseUint(epoch, 10, 63); err != nil {
				return nil, errPositions
			}
			numbers = rest
		}
		first, last, isRange := strings.Cut(numbers, "-")
		if !isRange {
			last = first
		}
		lo, err1 := strconv.ParseUint(first, 10, 63)
		hi, err2 := strconv.ParseUint(last, 10, 63)
		if err1 != nil || err2 != nil || p.Lane == "" || lo == 0 || hi < lo || hi-lo >= maxPositions-uint64(len(list)) {
			return nil, errPositions
		}
		for n := lo; n <= hi; n++ {
			p.Number = n
			list = append(list, p)
		}
	}
	return list, nil
}

// A numbered source decodes one body, and puts the positions of its header into
// the contexts of its events. They are stored with the event that is accepted, so
// they survive a crash, and they are no part of the payload, so they never make a
// conflict.
type numbered struct {
	inbox.Source
	positions []position
}

// numberedContext is what the context of an event becomes.
type numberedContext struct {
	Position position
	Body     json.RawMessage `json:",omitempty"` // the context that the source gave
}

// ContentTypes implements [inbox.ContentTyper], as the source does.
func (n numbered) ContentTypes() []string {
	if t, ok := n.Source.(inbox.ContentTyper); ok {
		return t.ContentTypes()
	}
	return []string{"application/json"}
}

func (n numbered) Decode(body []byte) ([]inbox.Event, error) {
	events, err := n.Source.Decode(body)
	if len(events) > len(n.positions) || err == nil && len(events) < len(n.positions) {
		return nil, errors.Join(err, fmt.Errorf("%d events have %d positions", len(events), len(n.positions)))
	}
	for i := range events {
		e := &events[i]
		c, failed := json.Marshal(numberedContext{n.positions[i], e.Context})
		if failed != nil {
			return nil, failed
		}
		e.Context = c
	}
	return events, err
}

// positionOf returns the position of an event that was accepted with one.
func positionOf(r inbox.Record) (position, error) {
	var c numberedContext
	if err := json.Unmarshal(r.Context, &c); err != nil {
		return position{}, fmt.Errorf("the context of an event: %w", err)
	}
	if c.Position.Number == 0 {
		return position{}, errors.New("an event was accepted without a position")
	}
	return c.Position, nil
}
