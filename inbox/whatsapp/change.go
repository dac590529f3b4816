package whatsapp

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/webhook"
)

// A change is one field's news: what surrounds its elements, and they.
type change struct {
	*entry
	raw      webhook.Value
	field    string
	members  [][]byte // of the change, without value
	business string   // digits of the number displayed
	phone    string   // business, else Meta's ID of the number
	rest     [][]byte // members of value that belong to all elements
	errors   bool     // value has errors, a reason to have no elements
	arrays   []array
	contacts contacts
	history  [][]byte // elements of history without messages
}

// An array is a member of value that holds elements.
type array struct {
	name string
	list webhook.Value
}

func (d *decoder) change(e *entry, raw webhook.Value) {
	if !raw.IsObject() {
		d.fault(e.at, "is not an object")
		return
	}
	c := &change{entry: e, raw: raw}
	var value webhook.Value
	for m := range raw.Members() {
		switch string(m.Name) {
		case "value":
			value = m.Value
			continue
		case "field":
			c.field, _ = m.Value.Text()
		}
		c.members = append(c.members, m.Raw)
	}
	if c.field == "" {
		d.fault(e.at, "names no field")
		return
	}
	c.readValue(value)
	elements := d.elements(c)
	if elements == nil {
		d.events = append(d.events, c.whole(value))
		return
	}
	events := make([]inbox.Event, 0, len(elements))
	kept := elements[:0]
	for i := range elements {
		ev, fault := c.event(&elements[i])
		if fault != "" {
			d.fault(elements[i].at(c), fault)
			continue
		}
		kept = append(kept, elements[i])
		events = append(events, ev)
	}
	d.surround(c, kept, events)
	d.events = append(d.events, events...)
}

func (c *change) readValue(value webhook.Value) {
	for m := range value.Members() {
		name := string(m.Name)
		switch name {
		case "messages", "statuses", "message_echoes", "calls", "groups", "state_sync", "history":
			c.arrays = append(c.arrays, array{name, m.Value})
			continue
		case "contacts":
			if m.Value.IsArray() {
				c.contacts.read(m.Value)
				continue
			}
		case "metadata":
			for n := range m.Value.Members() {
				c.number(n)
			}
		case "display_phone_number":
			c.number(m)
		case "errors":
			c.errors = !m.Value.IsNull()
		}
		c.rest = append(c.rest, m.Raw)
	}
}

// number reads the business number, from the metadata or, in events about the
// number itself, from value.
func (c *change) number(m webhook.Member) {
	text, _ := m.Value.Text()
	switch string(m.Name) {
	case "display_phone_number":
		c.business = webhook.Phone(text)
		if c.business != "" {
			c.phone = webhook.Keep(c.business)
		}
	case "phone_number_id":
		if c.business == "" {
			c.phone = webhook.Keep(text)
		}
	}
}

// elements lists the elements of all arrays. It returns nil, and not an empty
// list, when the change has none, so that the change itself is the event.
func (d *decoder) elements(c *change) []element {
	var all []element
	faulty := false
	for _, a := range c.arrays {
		switch {
		case a.list.IsNull():
		case !a.list.IsArray():
			faulty = true
			d.fault(c.at+", "+a.name, "is not an array")
		case a.name == "history":
			all = c.threads(all, a.list)
		default:
			n := 0
			for v := range a.list.Elements() {
				all = append(all, element{array: a.name, index: n, raw: v})
				n++
			}
		}
	}
	if all == nil && faulty {
		return []element{}
	}
	return all
}

// threads lists the messages of a history. What has no messages, as when the
// customer declined to share, goes to the context of those that are there.
func (c *change) threads(all []element, list webhook.Value) []element {
	n := 0
	for h := range list.Elements() {
		before, rest := len(all), len(c.history)
		var around [][]byte // the other members of this part of the history
		var threads []webhook.Value
		for m := range h.Members() {
			if string(m.Name) == "threads" && m.Value.IsArray() {
				threads = append(threads, m.Value)
			} else {
				around = append(around, m.Raw)
			}
		}
		for _, list := range threads {
			for t := range list.Elements() {
				found := false
				all, found = c.thread(all, t, around, &n)
				if !found {
					c.history = append(c.history, wrap([][]byte{t}, `{"threads":[`, `]}`))
				}
			}
		}
		if len(all) == before {
			c.history = append(c.history[:rest], h)
		}
	}
	return all
}

func (c *change) thread(all []element, t webhook.Value, around [][]byte, n *int) (list []element, found bool) {
	person := ""
	var members [][]byte
	var messages []webhook.Value
	for m := range t.Members() {
		if string(m.Name) == "messages" && m.Value.IsArray() {
			messages = append(messages, m.Value)
			continue
		}
		if string(m.Name) == "id" {
			person, _ = m.Value.Text()
		}
		members = append(members, m.Raw)
	}
	var context []byte
	for _, list := range messages {
		for v := range list.Elements() {
			if context == nil {
				thread := wrap(members, `"threads":[{`, `}]`)
				context = wrap(with(around, thread), "{", "}")
			}
			all = append(all, element{array: "history", index: *n, raw: v, thread: context, person: person})
			*n++
			found = true
		}
	}
	return all, found
}

// whole is the event of a change without elements.
func (c *change) whole(value webhook.Value) inbox.Event {
	ev := c.base()
	ev.ID = c.fingerprint("", c.raw)
	ev.Fingerprinted = true
	ev.Type = webhook.Word(c.field)
	for m := range value.Members() {
		if string(m.Name) == "event" {
			if text, ok := m.Value.Text(); ok {
				ev.Type = webhook.Word(c.field) + "." + webhook.Word(text)
			}
		}
	}
	ev.Unknown = c.unknown || !knownFields[c.field] || carriers[c.field] && !c.errors && len(c.arrays) == 0
	ev.Key = c.key(c.contacts.only())
	ev.Occurred = seconds(c.time)
	ev.Payload = c.raw
	if !c.bare {
		ev.Context = wrap(with(c.outer, wrap(c.inner, `"entry":[{`, `}]`)), "{", "}")
	}
	return ev
}

func (c *change) base() inbox.Event {
	return inbox.Event{Provider: provider, Account: webhook.Keep(c.id), Phone: c.phone}
}

func (c *change) key(person string) string {
	if person == "" {
		return webhook.Key(provider, c.id)
	}
	return webhook.Key(provider, c.phone, person)
}

// fingerprint is the identity of what has no ID.
func (c *change) fingerprint(array string, raw []byte) string {
	return provider + "/fp/" + webhook.Digest([]byte(c.id), []byte(c.time), []byte(c.field), []byte(array), raw)
}

func (e *element) at(c *change) string {
	return c.at + ", " + e.array + " " + strconv.Itoa(e.index)
}

// with returns the list with one more, and leaves the list's memory alone.
func with(list [][]byte, more []byte) [][]byte {
	return append(slices.Clip(list), more)
}

// wrap puts the parts between two texts, with commas.
func wrap(parts [][]byte, before, after string) []byte {
	n := len(before) + len(after) + len(parts)
	for _, p := range parts {
		n += len(p)
	}
	b := append(make([]byte, 0, n), before...)
	b = append(b, bytes.Join(parts, []byte(","))...)
	return append(b, after...)
}
