package whatsapp

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/webhook"
)

// Decode makes one event of every update in the body, in the order of the body.
// A body may hold one change without an envelope, {"field": ..., "value": ...},
// as the examples in the App Dashboard do. With an error, which names the parts
// by position and quotes nothing, the events are those of the other parts.
//
// The payload is the element's own bytes, for a change without elements the
// whole change's, and a part of the body's memory. Context is the body without
// its other elements, in the shape of the body, with the contact that belongs to
// the element; events may share its memory. Change neither.
//
// The events' Phone is the digits of the displayed number, or Meta's
// phone_number_id where the body has no number. IDs that are longer than 512
// bytes or hold control characters are left out of MessageID, ExternalID,
// Account and Phone; the payload has them.
func (s *Source) Decode(body []byte) ([]inbox.Event, error) {
	d := decoder{budget: contextBudget}
	d.body(body)
	return d.events, d.err()
}

type decoder struct {
	events []inbox.Event
	budget int // bytes that long contexts may still take
	faults []string
	more   int
}

// An entry is what stands around its changes.
type entry struct {
	at       string // where it is in the body, for errors
	bare     bool   // no envelope: the change is the body
	id, time string
	unknown  bool     // another product's object
	outer    [][]byte // the other members of the body
	inner    [][]byte // the other members of the entry
}

func (d *decoder) body(body []byte) {
	top, err := webhook.Parse(body)
	switch {
	case err != nil:
		d.fault("", err.Error())
		return
	case !top.IsObject():
		d.fault("", "the body is not an object")
		return
	}
	var outer [][]byte
	var entries []webhook.Value
	object, field := "", false
	for m := range top.Members() {
		switch string(m.Name) {
		case "entry":
			entries = append(entries, m.Value)
			continue
		case "object":
			object, _ = m.Value.Text()
		case "field":
			field = true
		}
		outer = append(outer, m.Raw)
	}
	switch {
	case len(entries) > 0:
		for _, list := range entries {
			d.entries(list, entry{unknown: object != "whatsapp_business_account", outer: outer})
		}
	case field:
		d.change(&entry{at: "the body", bare: true}, top)
	default:
		d.fault("", "the body has neither an entry nor a field")
	}
}

func (d *decoder) entries(list webhook.Value, e entry) {
	if !list.IsArray() {
		d.fault("", "entry is not an array")
		return
	}
	n := 0
	for v := range list.Elements() {
		e := e
		e.at = "entry " + strconv.Itoa(n)
		d.entry(&e, v)
		n++
	}
	if n == 0 {
		d.fault("", "entry is empty")
	}
}

func (d *decoder) entry(e *entry, v webhook.Value) {
	if !v.IsObject() {
		d.fault(e.at, "is not an object")
		return
	}
	var lists []webhook.Value
	for m := range v.Members() {
		switch string(m.Name) {
		case "changes":
			lists = append(lists, m.Value)
			continue
		case "id":
			e.id, _ = m.Value.Text()
		case "time":
			e.time, _ = m.Value.Text()
		}
		e.inner = append(e.inner, m.Raw)
	}
	at, n := e.at, 0
	for _, list := range lists {
		if !list.IsArray() {
			d.fault(at, "changes is not an array")
		}
		for c := range list.Elements() {
			e.at = at + ", change " + strconv.Itoa(n)
			d.change(e, c)
			n++
		}
	}
	if n == 0 {
		d.fault(at, "has no changes")
	}
}

// fault notes a part that could not be decoded. The first few are named, the
// others counted.
func (d *decoder) fault(at, what string) {
	if len(d.faults) == maxFaults {
		d.more++
		return
	}
	d.faults = append(d.faults, strings.TrimSpace(at+" "+what))
}

const maxFaults = 8

func (d *decoder) err() error {
	if len(d.faults) == 0 {
		return nil
	}
	text := strings.Join(d.faults, "; ")
	if d.more > 0 {
		text = fmt.Sprintf("%s; and %d more", text, d.more)
	}
	return fmt.Errorf("whatsapp: decode: %s; %d events were decoded, keep the body for the rest", text, len(d.events))
}

// seconds reads a Unix time, which Meta writes as a string or as a number. Zero
// and what is no time are no time.
func seconds(s string) time.Time {
	if t, ok := webhook.Seconds(s); ok && t.Unix() > 0 {
		return t
	}
	return time.Time{}
}
