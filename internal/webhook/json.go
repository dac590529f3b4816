// Package webhook is what the inbox's provider adapters share: a reader of JSON
// that keeps every value's own bytes, the making of identities and ordering
// keys, and the check of an HMAC against several secrets.
//
// encoding/json checks that a body is JSON and decodes its strings, but does not
// take it apart. An event's payload must be its own bytes, and what is unknown must
// be kept, which is the work of json.RawMessage: that is a copy which is checked
// again at every level, and there are several. Besides, encoding/json loses the
// order of members, keeps only the last of those with one name, and takes "ID" for
// "id". What is left here is to find where a value ends in a text that is known to
// be JSON.
package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"unicode/utf8"
)

// A Value is one JSON value, byte for byte as it was received: a part of the
// body, not a copy. Its methods rely on the check of [Parse].
type Value []byte

// Parse checks that the body is one JSON text and returns it without the space
// and the byte order mark around it. The checker nests to a fixed depth of
// 10,000. The error has the position of the fault and nothing of the body.
func Parse(body []byte) (Value, error) {
	text := bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	if json.Valid(text) {
		return bytes.Trim(text, " \t\r\n"), nil
	}
	if len(bytes.Trim(text, " \t\r\n")) == 0 {
		return nil, errors.New("the body is empty")
	}
	var at *json.SyntaxError
	if err := json.Unmarshal(text, new(json.RawMessage)); errors.As(err, &at) {
		return nil, fmt.Errorf("the body is not JSON: fault at byte %d of %d", at.Offset, len(text))
	}
	return nil, errors.New("the body is not JSON")
}

// IsObject reports whether the value is an object.
func (v Value) IsObject() bool { return len(v) > 0 && v[0] == '{' }

// IsArray reports whether the value is an array.
func (v Value) IsArray() bool { return len(v) > 0 && v[0] == '[' }

// IsNull reports whether the value is null or there is none.
func (v Value) IsNull() bool { return len(v) == 0 || v[0] == 'n' }

// Text returns a string decoded and a number as it is written, so that no number
// loses digits; false for other kinds. Bytes that are not UTF-8 come out as
// U+FFFD, as from encoding/json.
func (v Value) Text() (string, bool) {
	switch {
	case len(v) == 0:
		return "", false
	case v[0] == '"':
		return string(unquote(v)), true
	case v[0] == '-' || v[0] >= '0' && v[0] <= '9':
		return string(v), true
	}
	return "", false
}

// A Member is one member of an object.
type Member struct {
	Name  []byte // decoded
	Value Value
	Raw   []byte // name, colon and value
}

// Members returns the members of an object in order, repeated names included; of
// other values it returns none.
func (v Value) Members() iter.Seq[Member] {
	return func(yield func(Member) bool) {
		if !v.IsObject() {
			return
		}
		for i := space(v, 1); v[i] != '}'; i = next(v, i) {
			name := i
			colon := end(v, i)
			value := space(v, space(v, colon)+1)
			i = end(v, value)
			if !yield(Member{Name: unquote(v[name:colon]), Value: v[value:i:i], Raw: v[name:i:i]}) {
				return
			}
		}
	}
}

// Elements returns the elements of an array in order; of other values none.
func (v Value) Elements() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		if !v.IsArray() {
			return
		}
		for i := space(v, 1); v[i] != ']'; i = next(v, i) {
			value := i
			i = end(v, i)
			if !yield(v[value:i:i]) {
				return
			}
		}
	}
}

// next goes from the end of an item to the next one or to the closing bracket.
func next(b []byte, i int) int {
	if i = space(b, i); b[i] == ',' {
		return space(b, i+1)
	}
	return i
}

// end returns the index behind the value that begins at i. It does not recurse,
// so that nesting costs no stack.
func end(b []byte, i int) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		default:
			if depth > 0 {
				continue
			}
			for i+1 < len(b) && strings.IndexByte(",]} \t\r\n", b[i+1]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return i + 1
		}
	}
	return i
}

func space(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n' {
		i++
	}
	return i
}

func unquote(quoted []byte) []byte {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return inner
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // Parse has checked it
	return []byte(s)
}
