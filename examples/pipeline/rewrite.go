package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// A rewriter makes the bodies of a pass. From the second on, every provider ID is
// another one: the same ID becomes the same new ID in all bodies, also where it
// is referred to. Where an event has no ID, its entry gets another ID, or its
// envelope another time of creation. Persons and numbers stay, and with them the
// ordering keys, except of events that concern no person: those are ordered by
// the account that the entry names. Nothing else of the bytes changes.
type rewriter struct {
	bodies  []body
	ids     map[string]bool
	unnamed []bool // bodies with events that have no ID of their own
	mark    string // separates an ID from the number of the pass: no ID has it
}

func newRewriter(bodies []body) *rewriter {
	r := &rewriter{bodies: bodies, ids: make(map[string]bool), unnamed: make([]bool, len(bodies)), mark: "~"}
	for i, b := range bodies {
		events, _ := b.provider.source.Decode(b.bytes) // what does not decode goes to quarantine in every pass
		for _, e := range events {
			if e.MessageID != "" {
				r.ids[e.MessageID] = true
			}
			if envelope, ok := strings.CutPrefix(e.ID, "ycloud/"); ok {
				r.ids[envelope] = true
			}
			r.unnamed[i] = r.unnamed[i] || e.Fingerprinted || b.provider.name == "wechat" && e.ID != "wechat/"+e.MessageID
		}
	}
	for id := range r.ids {
		for strings.Contains(id, r.mark) {
			r.mark += "~"
		}
	}
	return r
}

// pass returns the bodies of a pass; the first has them as they are.
func (r *rewriter) pass(n int) []body {
	if n == 1 {
		return r.bodies
	}
	suffix := r.mark + fmt.Sprint(n)
	renamed := make([]body, len(r.bodies))
	for i, b := range r.bodies {
		if b.provider.name == "wechat" {
			renamed[i] = body{provider: b.provider, bytes: r.push(b.bytes, n, suffix, r.unnamed[i]), sealed: b.sealed}
			continue
		}
		out, err := renameStrings(b.bytes, func(path, s string) (string, bool) {
			return s + suffix, r.ids[s] || r.unnamed[i] && path == ".entry[].id"
		})
		switch {
		case err != nil:
			out = b.bytes // not JSON as a whole: quarantined in every pass
		case r.unnamed[i] && b.provider.name == "ycloud":
			out = created(out, n)
		}
		renamed[i] = body{provider: b.provider, bytes: out}
	}
	return renamed
}

// check makes sure that a second pass has as many events as the first, and none
// of them: an event can hold nothing that may be renamed.
func (r *rewriter) check() error {
	first := make(map[string]bool)
	for _, b := range r.bodies {
		events, _ := b.provider.source.Decode(b.bytes)
		for _, e := range events {
			first[e.ID] = true
		}
	}
	for i, b := range r.pass(2) {
		events, _ := b.provider.source.Decode(b.bytes)
		for _, e := range events {
			if first[e.ID] {
				return fmt.Errorf("-repeat: body %d of %d has an event without anything to rename, and so cannot be another event", i+1, len(r.bodies))
			}
		}
	}
	return nil
}

// created gives an envelope that has no ID another time of creation.
func created(envelope []byte, pass int) []byte {
	at := time.Unix(1_700_000_000+int64(pass), 0).UTC().Format(time.RFC3339)
	found := false
	out, err := renameStrings(envelope, func(path, _ string) (string, bool) {
		found = found || path == ".createTime"
		return at, path == ".createTime"
	})
	if err != nil || found {
		return out
	}
	begin := bytes.IndexByte(envelope, '{') + 1
	return slices.Concat(envelope[:begin], []byte(`"createTime":"`+at+`",`), envelope[begin:])
}

// renameStrings replaces strings and numbers of a JSON text by strings, and keeps
// every other byte.
// The path of a value names its members and marks elements with [].
func renameStrings(text []byte, rename func(path, value string) (string, bool)) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	r := renamer{text: text, decoder: d, rename: rename}
	if err := r.value(""); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	r.out.Write(text[r.copied:])
	return r.out.Bytes(), nil
}

type renamer struct {
	text    []byte
	decoder *json.Decoder
	rename  func(path, value string) (string, bool)
	out     bytes.Buffer
	copied  int // of text
}

func startsValue(c rune) bool { return c == '"' || c == '-' || c >= '0' && c <= '9' }

// value passes over one value, and over what it holds.
func (r *renamer) value(path string) error {
	before := int(r.decoder.InputOffset())
	token, err := r.decoder.Token()
	if err != nil {
		return err
	}
	switch t := token.(type) {
	case string, json.Number:
		if to, ok := r.rename(path, fmt.Sprint(t)); ok {
			begin := before + bytes.IndexFunc(r.text[before:], startsValue)
			quoted, err := json.Marshal(to)
			if err != nil {
				return err
			}
			r.out.Write(r.text[r.copied:begin])
			r.out.Write(quoted)
			r.copied = int(r.decoder.InputOffset())
		}
	case json.Delim:
		for r.decoder.More() {
			inner := path + "[]"
			if t == '{' {
				name, err := r.decoder.Token()
				if err != nil {
					return err
				}
				inner = fmt.Sprintf("%s.%s", path, name)
			}
			if err := r.value(inner); err != nil {
				return err
			}
		}
		_, err = r.decoder.Token() // the closing one
	}
	return err
}
