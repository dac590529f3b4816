package wechat

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// readXML reads one <xml> element and what is in it. A document type is refused, so
// that there are no entities but XML's own five and nothing to expand or to fetch; so
// is another encoding than UTF-8, which encoding/xml does not read. It gives up after
// a number of tokens.
func (p *push) readXML(tokens int) error {
	if !utf8.Valid(p.text) {
		return errors.New("the body is not UTF-8")
	}
	r := xmlReader{push: p, d: xml.NewDecoder(bytes.NewReader(p.text))}
	for n := 0; ; n++ {
		start := r.d.InputOffset()
		token, err := r.d.RawToken()
		if err == io.EOF {
			break
		}
		if err != nil {
			return r.fault("is not XML", r.d.InputOffset())
		}
		if n == tokens {
			return r.fault(fmt.Sprintf("has more than %d tags and texts", tokens), start)
		}
		if fault := r.token(token, start); fault != "" {
			return r.fault(fault, start)
		}
	}
	if !r.closed {
		return r.fault("is not XML, it breaks off", r.d.InputOffset())
	}
	return nil
}

// An xmlReader matches the tags itself, since names are compared with their prefix:
// the element of another namespace is not WeChat's.
type xmlReader struct {
	push   *push
	d      *xml.Decoder
	open   []node // the first is the root
	closed bool   // the root
}

// A node is an element that is open.
type node struct {
	name   string
	keep   bool // its text is wanted
	parent bool // it has elements in it
	text   []byte
}

func (r *xmlReader) fault(what string, at int64) error {
	return fmt.Errorf("the body %s: at byte %d of %d", what, at, len(r.push.text))
}

// token takes the next token, and says what is wrong with it.
func (r *xmlReader) token(token xml.Token, start int64) (fault string) {
	depth := len(r.open)
	switch t := token.(type) {
	case xml.StartElement:
		name := fullName(t.Name)
		switch {
		case r.closed || depth == 0 && name != "xml":
			return "is not one <xml> element"
		case depth > maxDepth:
			return fmt.Sprintf("nests deeper than %d", maxDepth)
		case depth > 0:
			r.open[depth-1].parent = true
		}
		r.open = append(r.open, node{name: name, keep: depth == 1 && readNames[name] || r.inList(name)})
	case xml.EndElement:
		if depth == 0 || r.open[depth-1].name != fullName(t.Name) {
			return "is not XML"
		}
		r.take(&r.open[depth-1])
		r.open = r.open[:depth-1]
		r.closed = depth == 1
	case xml.CharData:
		cdata := bytes.HasPrefix(r.push.text[start:], []byte("<![CDATA["))
		switch {
		case depth == 0 && (cdata || len(bytes.Trim(t, space)) > 0):
			return "is not one <xml> element"
		case depth > 0 && r.open[depth-1].keep:
			r.open[depth-1].write(t, cdata)
		}
	case xml.Directive:
		return "has a document type, which WeChat's pushes do not"
	case xml.ProcInst:
		if t.Target == "xml" && start != 0 {
			return "is not XML"
		}
	}
	return ""
}

const (
	maxDepth = 64 // WeChat's pushes have 5
	space    = " \t\r\n"
)

// inList reports whether a name that begins here is that of a reported message.
func (r *xmlReader) inList(name string) bool {
	depth := len(r.open)
	return name == "MsgID" && (depth == 2 || depth == 3) && r.open[depth-1].name == "List"
}

// take notes an element that ends.
func (r *xmlReader) take(n *node) {
	switch {
	case !n.keep:
	case len(r.open) > 2:
		if !n.parent {
			r.push.listed = append(r.push.listed, string(n.text))
		}
	case n.parent:
		r.push.odd[n.name] = true
	default:
		r.push.fields[n.name] = append(r.push.fields[n.name], string(n.text))
	}
}

// write adds a piece of the text: CDATA as it is, and other text without the space
// around it, which a person or a tool may have put there.
func (n *node) write(text []byte, cdata bool) {
	if !cdata {
		text = bytes.Trim(text, space)
	}
	n.text = append(n.text, text...)
}

func fullName(n xml.Name) string {
	if n.Space != "" {
		return n.Space + ":" + n.Local
	}
	return n.Local
}
