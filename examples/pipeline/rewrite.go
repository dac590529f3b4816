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

// rewrite returns the bodies of a pass. From the second on, every provider ID is
// another one: the same ID becomes the same new ID in all bodies, also where it
// is referred to. Where an event has no ID, its entry gets another ID, or its
// envelope another time of creation. Persons and numbers stay, and with them the
// ordering keys, except of events that concern no person: those are ordered by
// the account that the entry names. Nothing else of the bytes changes.
func rewrite(bodies []body, pass int) []body {
	if pass == 1 {
		return bodies
	}
	suffix := fmt.Sprintf("-%d", pass)
	ids := make(map[string]bool)
	unnamed := make([]bool, len(bodies))
	for i, b := range bodies {
		events, err := b.provider.source.Decode(b.bytes)
		if err != nil && len(events) == 0 {
			continue // it goes to quarantine in every pass
		}
		for _, e := range events {
			if e.MessageID != "" {
				ids[e.MessageID] = true
			}
			if envelope, ok := strings.CutPrefix(e.ID, "ycloud/"); ok {
				ids[envelope] = true
			}
			unnamed[i] = unnamed[i] || e.Fingerprinted
		}
	}
	renamed := make([]body, len(bodies))
	for i, b := range bodies {
		out, err := renameStrings(b.bytes, func(path, s string) (string, bool) {
			return s + suffix, ids[s] || unnamed[i] && path == ".entry[].id"
		})
		switch {
		case err != nil:
			out = b.bytes // not JSON as a whole: quarantined in every pass
		case unnamed[i] && b.provider.name == "ycloud":
			out = created(out, pass)
		}
		renamed[i] = body{b.provider, out}
	}
	return renamed
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

// renameStrings replaces string values of a JSON text and keeps every other byte.
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

// value passes over one value, and over what it holds.
func (r *renamer) value(path string) error {
	before := int(r.decoder.InputOffset())
	token, err := r.decoder.Token()
	if err != nil {
		return err
	}
	switch t := token.(type) {
	case string:
		if to, ok := r.rename(path, t); ok {
			begin := before + bytes.IndexByte(r.text[before:], '"')
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
