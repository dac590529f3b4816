package whatsapp

import (
	"strconv"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/webhook"
)

// The context of an event up to contextFree bytes is always there. Longer ones
// share a budget for the body that lets any body of few events through; beyond
// it a body of many events, each with much around it, would be stored many times
// over. Those events have no context, and the body is reported for quarantine.
const (
	contextFree   = 1 << 10
	contextBudget = 4 << 20
)

// surround gives each event its context: the body with the other elements taken
// out, and of the contacts the element's own and those of nobody here.
func (d *decoder) surround(c *change, elements []element, events []inbox.Event) {
	matched := make(map[int]bool)
	for i := range elements {
		matched[elements[i].contact] = true
	}
	var shared [][]byte
	for i := range c.contacts.list {
		if !matched[i] {
			shared = append(shared, c.contacts.list[i].raw)
		}
	}
	s := c.surroundings()
	made := make(map[int][]byte) // by contact
	left := 0
	for i := range elements {
		e := &elements[i]
		context := made[e.contact]
		if context == nil || e.array == "history" {
			context = s.around(e, c, shared)
			if e.array != "history" {
				made[e.contact] = context
			}
		}
		if len(context) > contextFree {
			if d.budget < len(context) {
				left++
				continue
			}
			d.budget -= len(context)
		}
		events[i].Context = context
	}
	if left > 0 {
		d.fault(c.at, "has too much around its elements, so that "+strconv.Itoa(left)+" of them have no context")
	}
}

// surroundings are the parts of the context that all elements of a change share.
type surroundings struct{ head, tail []byte }

func (c *change) surroundings() (s surroundings) {
	value := wrap(c.rest, `"value":{`, "")
	inner := wrap(with(c.members, value), "", "")
	if c.bare {
		return surroundings{head: append([]byte("{"), inner...), tail: []byte("}}")}
	}
	changes := append([]byte(`"changes":[{`), inner...)
	entry := wrap(with(c.inner, changes), `"entry":[{`, "")
	return surroundings{
		head: wrap(with(c.outer, entry), "{", ""),
		tail: []byte("}}]}]}"),
	}
}

func (s *surroundings) around(e *element, c *change, shared [][]byte) []byte {
	var more [][]byte
	contacts := shared
	if e.contact >= 0 {
		contacts = append([][]byte{c.contacts.list[e.contact].raw}, shared...)
	}
	if len(contacts) > 0 {
		more = append(more, wrap(contacts, `"contacts":[`, "]"))
	}
	history := c.history
	if e.thread != nil {
		history = append([][]byte{e.thread}, history...)
	}
	if len(history) > 0 {
		more = append(more, wrap(history, `"history":[`, "]"))
	}
	before := string(s.head)
	if len(more) > 0 && len(c.rest) > 0 {
		before += ","
	}
	return wrap(more, before, string(s.tail))
}

// contacts are what the body says about the persons in it.
type contacts struct {
	list []contact
	by   map[string]int // number in digits or user ID
}

type contact struct {
	webhook.Party
	raw webhook.Value
}

func (cs *contacts) read(list webhook.Value) {
	if cs.by == nil {
		cs.by = make(map[string]int)
	}
	for v := range list.Elements() {
		c := contact{Party: readContact(v), raw: v}
		for _, name := range []string{c.Name(), c.User, c.Parent} {
			if _, taken := cs.by[name]; !taken && name != "" {
				cs.by[name] = len(cs.list)
			}
		}
		cs.list = append(cs.list, c)
	}
}

func readContact(v webhook.Value) (p webhook.Party) {
	for m := range v.Members() {
		switch string(m.Name) {
		case "wa_id", "phone_number":
			p.Number, _ = m.Value.Text()
		case "user_id":
			p.User, _ = m.Value.Text()
		case "parent_user_id":
			p.Parent, _ = m.Value.Text()
		}
	}
	return p
}

// find returns the index of the party's contact, or -1.
func (cs *contacts) find(p webhook.Party) int {
	for _, name := range []string{p.Name(), p.User, p.Number} {
		if i, ok := cs.by[name]; ok && name != "" {
			return i
		}
	}
	return -1
}

// only is the person of a body that has one contact.
func (cs *contacts) only() string {
	if len(cs.list) == 1 {
		return cs.list[0].Name()
	}
	return ""
}
