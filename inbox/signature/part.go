package signature

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"

	"github.com/pawl-go/pawl/inbox"
)

// A Part is one part of what a provider signs.
type Part struct {
	kind partKind
	text string
	urls []string
}

// Text is constant text, such as "." between other parts.
func Text(s string) Part { return Part{kind: partText, text: s} }

// Header is the value of a header, which must be there once.
func Header(name string) Part { return Part{kind: partHeader, text: name} }

// Time is the time as it is written in the header of the scheme.
func Time() Part { return Part{kind: partTime} }

// Body is the raw body.
func Body() Part { return Part{kind: partBody} }

// SortedForm is the fields of a form in the body, sorted by name: name and value,
// decoded, without anything between them. Of a name that comes more than once, each
// different value counts once, sorted.
//
// This is Twilio's rule, and has its weakness: forms that differ only in where a
// name or value ends, or in how often a field is repeated, have one signature.
// Nobody without the secret chooses the text, but whoever has kept a delivery can
// cut it differently; so take only fields that you know.
func SortedForm() Part { return Part{kind: partForm} }

// URL is the public URL: its public beginning and the target of the request,
// [inbox.Delivery.URL]. With more than one, up to 4, each is tried. See the
// package's "The public URL".
func URL(public ...string) Part { return Part{kind: partURL, urls: slices.Clone(public)} }

// QueryDigest adds nothing to what is signed: the parameter of that name in the
// signed URL must be the SHA-256 of the raw body in hexadecimal digits. This is how
// Twilio signs a JSON body.
func QueryDigest(name string) Part { return Part{kind: partDigest, text: name} }

type partKind int

const (
	partText partKind = iota + 1
	partHeader
	partTime
	partBody
	partForm
	partURL
	partDigest
)

// forms is in how many ways the signed text can be written.
func (s *Scheme) forms() int {
	for _, p := range s.Signed {
		if p.kind == partURL {
			return len(p.urls)
		}
	}
	return 1
}

// parts returns what is signed, in one of its forms. The error is a
// *inbox.RejectError.
func (s *Scheme) parts(d *inbox.Delivery, stamp string, form int) (parts [][]byte, err error) {
	for _, p := range s.Signed {
		switch p.kind {
		case partText:
			parts = append(parts, []byte(p.text))
		case partHeader:
			value, err := single(d, p.text)
			if err != nil {
				return nil, err
			}
			parts = append(parts, []byte(value))
		case partTime:
			parts = append(parts, []byte(stamp))
		case partBody:
			parts = append(parts, d.Body)
		case partForm:
			fields, err := sortedForm(d.Body)
			if err != nil {
				return nil, err
			}
			parts = append(parts, fields...)
		case partURL:
			if !strings.HasPrefix(d.URL, "/") {
				return nil, &inbox.RejectError{Reason: inbox.BadSignature, Detail: "the delivery has no URL, which is signed"}
			}
			parts = append(parts, []byte(p.urls[form]), []byte(d.URL))
		case partDigest:
			if err := checkDigest(d, p.text); err != nil {
				return nil, err
			}
		}
	}
	return parts, nil
}

func sortedForm(body []byte) (parts [][]byte, err error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, &inbox.RejectError{Reason: inbox.BadBody, Detail: "the body is not a form"}
	}
	names := make([]string, 0, len(form))
	for name := range form {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		values := slices.Clone(form[name])
		slices.Sort(values)
		for _, v := range slices.Compact(values) {
			parts = append(parts, []byte(name), []byte(v))
		}
	}
	return parts, nil
}

// checkDigest takes the digest from the URL, since that is what was signed.
func checkDigest(d *inbox.Delivery, name string) error {
	_, raw, _ := strings.Cut(d.URL, "?")
	query, err := url.ParseQuery(raw)
	if err != nil || len(query[name]) > 1 {
		return &inbox.RejectError{Reason: inbox.BadSignature, Detail: "the query cannot be read, or has more than one " + name}
	}
	if len(query[name]) == 0 {
		return &inbox.RejectError{Reason: inbox.NoSignature, Detail: "the query has no " + name}
	}
	want, err := hex.DecodeString(query[name][0])
	if err != nil || len(want) != sha256.Size {
		return &inbox.RejectError{Reason: inbox.BadSignature, Detail: name + " is not 64 hexadecimal digits"}
	}
	sum := sha256.Sum256(d.Body)
	if subtle.ConstantTimeCompare(sum[:], want) != 1 {
		return &inbox.RejectError{Reason: inbox.WrongSignature, Detail: "the body is not the one whose digest is signed"}
	}
	return nil
}
