package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// push makes the push of a pass. One without a MsgId is known by its sender and
// CreateTime, so it gets another time.
func (r *rewriter) push(text []byte, pass int, suffix string, unnamed bool) []byte {
	found := false
	rename := func(path, s string) (string, bool) {
		if unnamed && (path == ".CreateTime" || path == ".xml.CreateTime") {
			found = true
			return fmt.Sprint(pass) + s, true // a greater number, and one to one
		}
		return s + suffix, r.ids[s]
	}
	edit, created := renameStrings, fmt.Sprintf(`"CreateTime":%d,`, pass)
	begin := bytes.IndexByte(text, '{') + 1
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("<")) {
		edit, created = renameTexts, fmt.Sprintf("<CreateTime>%d</CreateTime>", pass)
		begin = bytes.IndexByte(text, '>') + 1
	}
	out, err := edit(text, rename)
	switch {
	case err != nil:
		return text // not to be decoded: quarantined in every pass
	case unnamed && !found:
		return slices.Concat(text[:begin], []byte(created), text[begin:])
	}
	return out
}

// renameTexts replaces the texts of the elements of an XML document, and keeps
// every other byte. The path of a text names its elements.
func renameTexts(text []byte, rename func(path, value string) (string, bool)) ([]byte, error) {
	d := xml.NewDecoder(bytes.NewReader(text))
	var out bytes.Buffer
	var path []string
	copied, before := 0, 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			out.Write(text[copied:])
			return out.Bytes(), nil
		}
		if err != nil {
			return nil, err
		}
		after := int(d.InputOffset())
		switch t := token.(type) {
		case xml.StartElement:
			path = append(path, t.Name.Local)
		case xml.EndElement:
			path = path[:len(path)-1]
		case xml.CharData:
			var name strings.Builder
			for _, p := range path {
				name.WriteString("." + p)
			}
			if to, ok := rename(name.String(), string(t)); ok {
				out.Write(text[copied:before])
				if err := xml.EscapeText(&out, []byte(to)); err != nil {
					return nil, err
				}
				copied = after
			}
		}
		before = after
	}
}
