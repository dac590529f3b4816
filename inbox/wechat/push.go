package wechat

import (
	"bytes"
	"errors"
	"math"

	"github.com/pawl-go/pawl/internal/webhook"
)

// A push is what is read of one, in XML or JSON: the texts of the top level, and the
// message IDs in its lists. Nothing else of a push is needed to know which event
// it is, and the handler gets its bytes.
type push struct {
	text   []byte              // the push without what is around it
	fields map[string][]string // every value of the names in readNames
	odd    map[string]bool     // those of them that are no text and no number
	listed []string            // MsgID in List
}

// read reads a push. The errors quote nothing of it.
func read(body []byte) (push, error) { return readUpTo(body, math.MaxInt) }

// readUpTo reads a push of up to so many tags and texts, if it is XML.
func readUpTo(body []byte, tokens int) (p push, err error) {
	p = push{text: trim(body), fields: make(map[string][]string), odd: make(map[string]bool)}
	switch {
	case len(p.text) == 0:
		return p, errors.New("the body is empty")
	case isXML(p.text):
		err = p.readXML(tokens)
	default:
		err = p.readJSON()
	}
	return p, err
}

// trim takes off a byte order mark and the space around a push.
func trim(body []byte) []byte {
	return bytes.Trim(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")), " \t\r\n")
}

func isXML(text []byte) bool { return len(text) > 0 && text[0] == '<' }

// one returns the value of a name; nothing if there is none. It fails on values that
// differ, since others who read the push may take another one, and on what is
// neither a text nor a number.
func (p *push) one(name string) (string, error) {
	if p.odd[name] {
		return "", errors.New(name + " is neither a text nor a number")
	}
	values := p.fields[name]
	for _, v := range values {
		if v != values[0] {
			return "", errors.New(name + " is there more than once")
		}
	}
	if len(values) == 0 {
		return "", nil
	}
	return values[0], nil
}

// has reports whether there is such a name, with whatever value but null.
func (p *push) has(name string) bool { return p.odd[name] || len(p.fields[name]) > 0 }

// encrypt is the push's Encrypt if there is one and no other.
func (p *push) encrypt() string {
	s, err := p.one("Encrypt")
	if err != nil {
		return ""
	}
	return s
}

func (p *push) readJSON() error {
	v, err := webhook.Parse(p.text)
	if err != nil {
		return err
	}
	if !v.IsObject() {
		return errors.New("the body is not an object")
	}
	for m := range v.Members() {
		name := string(m.Name)
		p.listedJSON(name, m.Value)
		if !readNames[name] || m.Value.IsNull() {
			continue
		}
		if s, ok := m.Value.Text(); ok {
			p.fields[name] = append(p.fields[name], s)
		} else {
			p.odd[name] = true
		}
	}
	return nil
}

// listedJSON finds the IDs of a report: in List, which is an object when there is one
// and an array when there are several, at the top or in one object in between.
func (p *push) listedJSON(name string, v webhook.Value) {
	if name == "List" {
		p.list(v)
		return
	}
	for m := range v.Members() {
		if string(m.Name) == "List" {
			p.list(m.Value)
		}
	}
}

func (p *push) list(v webhook.Value) {
	if !v.IsArray() {
		p.listItem(v)
	}
	for item := range v.Elements() {
		p.listItem(item)
	}
}

func (p *push) listItem(item webhook.Value) {
	for m := range item.Members() {
		if s, ok := m.Value.Text(); ok && string(m.Name) == "MsgID" {
			p.listed = append(p.listed, s)
		}
	}
}
