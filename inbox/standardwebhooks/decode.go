package standardwebhooks

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/webhook"
)

// Decode makes one event of what [Source.Verify] returned. It fails, and quotes
// nothing, when the provider's body is not one JSON object, or when there is no ID
// before it.
//
// The payload is the provider's body without space around it, a part of the body's
// memory, and there is no context. Type is the body's "type", marked Unknown if it
// has none; Occurred its "timestamp", if that is one of RFC 3339 as the
// specification has it. A provider that writes other times or IDs has them in the
// payload.
func (s *Source) Decode(body []byte) ([]inbox.Event, error) {
	id, text, ok := open(body)
	if !ok {
		return nil, errors.New("standardwebhooks: decode: the body does not begin with a webhook-id, as Verify returns it; nothing was decoded, keep it")
	}
	v, err := webhook.Parse(text)
	if err == nil && !v.IsObject() {
		err = errors.New("the body is not an object")
	}
	if err != nil {
		return nil, fmt.Errorf("standardwebhooks: decode: %w; nothing was decoded, keep the body", err)
	}
	ev := inbox.Event{ID: webhook.Identity(s.provider, id), Provider: s.provider, Payload: v}
	kind := ""
	for m := range v.Members() {
		switch string(m.Name) {
		case "type":
			kind, _ = m.Value.Text()
		case "timestamp":
			at, _ := m.Value.Text()
			ev.Occurred = webhook.Time(at)
		}
	}
	ev.Type, ev.Unknown = webhook.Word(kind), kind == ""
	ev.Key = s.orderingKey(ev)
	return []inbox.Event{ev}, nil
}

// orderingKey is the identity for an event that is ordered with no other.
func (s *Source) orderingKey(ev inbox.Event) string {
	if s.key != nil {
		if key := s.key(ev); key != "" {
			return webhook.Key(s.provider, key)
		}
	}
	return ev.ID
}

// seal puts the ID before the body. net/http lets no header with a line break
// through, but a delivery may have come another way.
func seal(id string, body []byte) ([]byte, error) {
	if strings.ContainsAny(id, "\r\n") {
		return nil, &inbox.RejectError{Reason: inbox.BadSignature, Detail: header + " has a line break"}
	}
	b := make([]byte, 0, len(first)+len(id)+2+len(body))
	b = append(append(b, first...), id...)
	return append(append(b, "\n\n"...), body...), nil
}

// open is the reverse of seal.
func open(b []byte) (id string, body []byte, ok bool) {
	rest, ok := bytes.CutPrefix(b, []byte(first))
	if !ok {
		return "", nil, false
	}
	line, body, ok := bytes.Cut(rest, []byte("\n\n"))
	if !ok || len(line) == 0 || bytes.IndexByte(line, '\n') >= 0 {
		return "", nil, false
	}
	return string(line), body, true
}

const first = header + ": "

func validName(s string) bool {
	return s != "" && len(s) <= 64 && webhook.Word(s) == s
}
