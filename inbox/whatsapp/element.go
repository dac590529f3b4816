package whatsapp

import (
	"cmp"
	"strings"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/webhook"
)

// An element is one update.
type element struct {
	array   string
	index   int // in its array
	raw     webhook.Value
	thread  []byte // history: what stands around the message
	person  string // history: the thread's ID, the other party
	contact int    // index of its contact, or -1
}

// The fields of an element that Pawl reads, as far as each kind has them.
type fields struct {
	id                    webhook.Value
	timestamp, kind       string
	status, event         string
	externalID, direction string
	from, to              webhook.Party
	recipient             webhook.Party
	participant           webhook.Party
}

func (c *change) event(e *element) (ev inbox.Event, fault string) {
	if !e.raw.IsObject() {
		return ev, "is not an object"
	}
	f := readFields(e.raw)
	id, ok := f.id.Text()
	if !ok && !f.id.IsNull() {
		return ev, "has an id that is neither text nor a number"
	}
	ev = c.base()
	ev.ID, ev.Fingerprinted = c.identity(e, id, &f)
	ev.MessageID, ev.ExternalID = webhook.Keep(id), webhook.Keep(f.externalID)
	detail := f.detail(e.array)
	ev.Type = webhook.Word(c.field) + "." + e.array + "." + webhook.Word(detail)
	ev.Unknown = c.unknown || !knownFields[c.field] || !knownDetails[e.array][detail]
	ev.Key = c.key(c.person(e, &f))
	if ev.Occurred = seconds(f.timestamp); ev.Occurred.IsZero() {
		ev.Occurred = seconds(c.time)
	}
	ev.Payload = e.raw
	return ev, ""
}

// identity is field, array and the ID that Meta gives; without one, or with one
// that cannot stand for itself, a digest.
func (c *change) identity(e *element, id string, f *fields) (identity string, fingerprinted bool) {
	if id == "" || e.array == "statuses" && f.status == "" {
		return c.fingerprint(e.array, e.raw), true
	}
	var b strings.Builder
	b.WriteString(provider + "/" + webhook.Part(c.field) + "/" + e.array + "/" + id)
	participant := cmp.Or(f.participant.Number, f.participant.User, f.participant.Parent)
	if e.array == "statuses" {
		b.WriteString("/" + webhook.Part(f.status) + "/" + webhook.Part(participant))
	}
	if webhook.Plain(b.String()) {
		return b.String(), false
	}
	return provider + "/fp/" + webhook.Digest([]byte("id"), []byte(c.field), []byte(e.array), f.id,
		[]byte(f.status), []byte(participant)), false
}

// person is the party that is not the business, and the contact that goes with
// it. A number is preferred, also the contact's, since it is what the other
// providers have.
func (c *change) person(e *element, f *fields) string {
	e.contact = -1
	for _, p := range c.parties(e, f) {
		name := p.Name()
		if name == "" || name == c.business {
			continue
		}
		e.contact = c.contacts.find(p)
		if e.contact >= 0 && webhook.Phone(name) == "" {
			if number := webhook.Phone(c.contacts.list[e.contact].Number); number != "" && number != c.business {
				return number
			}
		}
		return name
	}
	if e.array == "groups" || e.array == "state_sync" {
		return "" // about a group, or without a number
	}
	return c.contacts.only()
}

// parties lists who may be the person, likeliest first.
func (c *change) parties(e *element, f *fields) [3]webhook.Party {
	switch e.array {
	case "statuses":
		return [3]webhook.Party{f.participant, f.recipient}
	case "history":
		return [3]webhook.Party{{Number: e.person}, f.from, f.to}
	case "groups":
		return [3]webhook.Party{}
	case "message_echoes":
		return [3]webhook.Party{f.to, f.from}
	}
	if f.direction == "BUSINESS_INITIATED" {
		return [3]webhook.Party{f.to, f.from}
	}
	return [3]webhook.Party{f.from, f.to}
}

// detail is what the last part of the event's type says.
func (f *fields) detail(array string) string {
	switch array {
	case "statuses":
		return f.status
	case "calls":
		return cmp.Or(f.event, f.kind)
	}
	return f.kind
}

func readFields(raw webhook.Value) (f fields) {
	for m := range raw.Members() {
		var text *string
		switch string(m.Name) {
		case "id":
			f.id = m.Value
			continue
		case "timestamp":
			text = &f.timestamp
		case "type":
			text = &f.kind
		case "status":
			text = &f.status
		case "event":
			text = &f.event
		case "direction":
			text = &f.direction
		case "biz_opaque_callback_data":
			text = &f.externalID
		case "from":
			text = &f.from.Number
		case "from_user_id":
			text = &f.from.User
		case "from_parent_user_id":
			text = &f.from.Parent
		case "to":
			text = &f.to.Number
		case "to_user_id":
			text = &f.to.User
		case "to_parent_user_id":
			text = &f.to.Parent
		case "recipient_id":
			text = &f.recipient.Number
		case "recipient_user_id":
			text = &f.recipient.User
		case "recipient_parent_user_id":
			text = &f.recipient.Parent
		case "recipient_participant_id", "participant_recipient_id": // one page of Meta's has both
			text = &f.participant.Number
		case "recipient_participant_user_id":
			text = &f.participant.User
		case "recipient_participant_parent_user_id":
			text = &f.participant.Parent
		case "contact": // state_sync: the contact is the person, and the time stands in metadata
			f.from = readContact(m.Value)
			continue
		case "metadata":
			for n := range m.Value.Members() {
				if string(n.Name) == "timestamp" {
					f.timestamp, _ = n.Value.Text()
				}
			}
			continue
		default:
			continue
		}
		*text, _ = m.Value.Text()
	}
	return f
}
