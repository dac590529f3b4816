package wechat

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/webhook"
)

// Decode makes one event of the push, in XML or JSON by its first byte. It fails
// when the push is neither, when it does not say what it is (no MsgId, MsgType,
// Event, InfoType or action), and when what its identity is made of is there twice
// with different values or is neither text nor a number. The error quotes nothing.
//
// XML is read without document types, entities but the five of XML itself and
// encodings but UTF-8, and to a fixed depth.
//
// The payload is the whole push, a part of the body's memory, without the space
// and the byte order mark around it, and there is no context. Type is the MsgType,
// "event." and the Event, "info." and the InfoType, or "action." and the action.
// Account is ToUserName, or the app ID that a notice is about. MessageID is the
// MsgId, and in reports the MsgID of the message or job that they are about, where it
// is one. ExternalID is the order number of your own that some events echo. Phone
// and Version are empty. Such texts are left out when they are longer than 512 bytes
// or hold control characters; the payload has them.
func (s *Source) Decode(body []byte) ([]inbox.Event, error) {
	p, err := read(body)
	if err == nil {
		var ev inbox.Event
		if ev, err = p.event(); err == nil {
			return []inbox.Event{ev}, nil
		}
	}
	return nil, fmt.Errorf("wechat: decode: %w; nothing was decoded, keep the body", err)
}

// The fields of a push that say which event it is.
type fields struct {
	account, person       string
	created               string
	kind, event, eventKey string
	id                    string
	info, action          string
}

func (p *push) event() (ev inbox.Event, err error) {
	f, err := p.identifying()
	if err != nil {
		return ev, err
	}
	ev.Type, ev.Unknown = f.detail()
	switch {
	case p.has("Encrypt"):
		return ev, errors.New("the push is encrypted; decode what Verify returns")
	case ev.Type == "" && f.id == "":
		return ev, errors.New("the push does not say what it is")
	case ev.Type == "":
		ev.Type, ev.Unknown = "-", true
	}
	ev.Provider = provider
	ev.ID, ev.Fingerprinted = p.identity(&f, ev.Type)
	account := cmp.Or(f.account, p.maybe("AuthorizerAppid"), p.maybe("AppId"), p.maybe("SuiteId"))
	ev.Key = webhook.Key(provider, account)
	if f.person != "" && f.person != system {
		ev.Key = webhook.Key(provider, account, f.person)
	}
	ev.Account = webhook.Keep(account)
	ev.MessageID = webhook.Keep(cmp.Or(f.id, p.reported()))
	ev.ExternalID = webhook.Keep(p.maybe(ownOrder[f.event]))
	ev.Occurred = timestamp(cmp.Or(f.created, p.maybe("TimeStamp")))
	ev.Payload = p.text
	return ev, nil
}

func (p *push) identifying() (f fields, err error) {
	for _, x := range []struct {
		name string
		to   *string
	}{
		{"ToUserName", &f.account}, {"FromUserName", &f.person}, {"CreateTime", &f.created}, {"MsgType", &f.kind},
		{"Event", &f.event}, {"EventKey", &f.eventKey}, {"MsgId", &f.id}, {"InfoType", &f.info}, {"action", &f.action},
	} {
		value, err := p.one(x.name)
		if err != nil {
			return f, err
		}
		*x.to = value
	}
	if f.id == "0" {
		f.id = "" // no ID at all, rather than one that all such pushes share
	}
	return f, nil
}

// detail is the event's type, empty if the push names none.
func (f *fields) detail() (kind string, unknown bool) {
	switch {
	case f.kind == "event" || f.kind == "" && f.event != "":
		return "event." + webhook.Word(f.event), !knownEvents[f.event]
	case f.kind != "":
		return webhook.Word(f.kind), !knownTypes[f.kind]
	case f.info != "":
		return "info." + webhook.Word(f.info), !knownInfos[f.info]
	case f.action != "":
		return "action." + webhook.Word(f.action), f.action != "CheckContainerPath"
	}
	return "", true
}

// identity has a fixed number of parts before EventKey, which is the last and so
// may have slashes.
func (p *push) identity(f *fields, kind string) (identity string, fingerprinted bool) {
	switch {
	case f.id != "":
		identity = provider + "/" + webhook.Part(f.id)
	case f.event != "" && f.created != "" && f.person != "" && f.person != system:
		identity = provider + "/" + webhook.Part(f.person) + "/" + webhook.Part(f.created) + "/" + webhook.Part(f.event) + "/" + f.eventKey
	default:
		return provider + "/fp/" + webhook.Digest([]byte(kind), p.text), true
	}
	if webhook.Plain(identity) {
		return identity, false
	}
	return provider + "/fp/" + webhook.Digest([]byte("id"), []byte(f.id), []byte(f.person), []byte(f.created),
		[]byte(f.event), []byte(f.eventKey)), false
}

// system is the sender of WeCom's events about no person, of which there can be many
// in one second.
const system = "sys"

// maybe is the value of a name that no identity hangs on.
func (p *push) maybe(name string) string {
	value, _ := p.one(name)
	return value
}

// reported is the ID of the message or job that a report is about, if it is one.
func (p *push) reported() string {
	if id := p.maybe("MsgID"); id != "" || len(p.listed) == 0 {
		return id
	}
	for _, id := range p.listed {
		if id != p.listed[0] {
			return ""
		}
	}
	return p.listed[0]
}

// timestamp reads CreateTime: seconds, or milliseconds in 13 digits and more. Zero
// and what is no time are no time.
func timestamp(s string) time.Time {
	millis := uint64(0)
	if n := len(s); n >= 13 {
		var err error
		if millis, err = strconv.ParseUint(s[n-3:], 10, 16); err != nil {
			return time.Time{}
		}
		s = s[:n-3]
	}
	t, ok := webhook.Seconds(s)
	if !ok || t.Unix() <= 0 {
		return time.Time{}
	}
	return t.Add(time.Duration(millis) * time.Millisecond)
}
