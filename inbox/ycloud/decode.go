package ycloud

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/webhook"
)

// Decode makes one event of the envelope. It fails when the body is not one JSON
// object with an id or a type, and quotes nothing of it.
//
// The payload is the whole envelope, a part of the body's memory, and there is no
// context. MessageID is the WhatsApp message ID (wamid), or YCloud's own while
// WhatsApp has not accepted the message; ExternalID is the externalId that you
// sent it with; Phone is the digits of the business number; Version is the
// envelope's apiVersion. Such texts are left out when they are longer than 512
// bytes or hold control characters; the payload has them.
func (s *Source) Decode(body []byte) ([]inbox.Event, error) {
	text, err := webhook.Parse(body)
	if err != nil {
		return nil, fmt.Errorf("ycloud: decode: %w; nothing was decoded, keep the body", err)
	}
	ev, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("ycloud: decode: %w; nothing was decoded, keep the body", err)
	}
	return []inbox.Event{ev}, nil
}

func decode(text webhook.Value) (ev inbox.Event, err error) {
	if !text.IsObject() {
		return ev, errors.New("the body is not an object")
	}
	var id, kind, version webhook.Value
	var created string
	var o object
	for m := range text.Members() {
		switch string(m.Name) {
		case "id":
			id = m.Value
		case "type":
			kind = m.Value
		case "apiVersion":
			version = m.Value
		case "createTime":
			created, _ = m.Value.Text()
		default:
			if m.Value.IsObject() && o.name == "" {
				o = readObject(string(m.Name), m.Value)
			}
		}
	}
	name, _ := kind.Text()
	if ev.ID, ev.Fingerprinted, err = identity(id, name, text); err != nil {
		return ev, err
	}
	ev.Provider = provider
	ev.Type = webhook.Word(name)
	ev.Unknown = !knownTypes[name]
	ev.Version, _ = version.Text()
	ev.Version = webhook.Keep(ev.Version)
	ev.Account, ev.Phone = webhook.Keep(o.account), webhook.Keep(o.business)
	ev.MessageID, ev.ExternalID = webhook.Keep(o.messageID), webhook.Keep(o.externalID)
	ev.Key = webhook.Key(provider, o.account)
	if o.person != "" {
		ev.Key = webhook.Key(provider, o.business, o.person)
	}
	if ev.Occurred = timestamp(o.occurred); ev.Occurred.IsZero() {
		ev.Occurred = timestamp(created)
	}
	ev.Payload = text
	return ev, nil
}

func identity(id webhook.Value, kind string, text webhook.Value) (identity string, fingerprinted bool, err error) {
	name, ok := id.Text()
	switch {
	case !ok && !id.IsNull():
		return "", false, errors.New("the id is neither text nor a number")
	case name == "" && kind == "":
		return "", false, errors.New("the envelope has neither an id nor a type")
	case name == "":
		return provider + "/fp/" + webhook.Digest([]byte(kind), text), true, nil
	case strings.HasPrefix(name, "fp/") || strings.HasPrefix(name, "raw/") || !webhook.Plain(provider+"/"+name):
		return provider + "/fp/" + webhook.Digest([]byte("id"), []byte(kind), id), false, nil
	}
	return provider + "/" + name, false, nil
}

// timestamp reads the times of YCloud, which are texts except in group events,
// where they are seconds.
func timestamp(s string) time.Time {
	if t, ok := webhook.Seconds(s); ok && t.Unix() > 0 {
		return t
	}
	return webhook.Time(s)
}
