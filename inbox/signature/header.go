package signature

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/webhook"
)

// What the headers of a delivery say.
type headers struct {
	macs   [][]byte
	stamp  string // the time as it is written, since that is what was signed
	signed time.Time
}

// read takes the header of the signatures apart. The error is a *inbox.RejectError.
func (s *Scheme) read(d *inbox.Delivery) (h headers, err error) {
	line, err := single(d, s.Header)
	if err != nil {
		return h, err
	}
	if s.TimeHeader != "" {
		if h.stamp, err = single(d, s.TimeHeader); err != nil {
			return h, err
		}
	}
	times := 0
	for item := range s.items(line) {
		if t, ok := strings.CutPrefix(item, s.TimePrefix); ok && s.TimePrefix != "" {
			h.stamp = t
			times++
			continue
		}
		if digits, ok := strings.CutPrefix(item, s.Prefix); ok {
			if mac, ok := s.decode(digits); ok {
				h.macs = append(h.macs, mac)
			}
		}
	}
	if len(h.macs) == 0 {
		return h, bad(s.Header, "has no signature that is "+s.wellFormed())
	}
	if !s.timed() {
		return h, nil
	}
	if times > 1 {
		return h, bad(s.Header, "has more than one time")
	}
	var ok bool
	if h.signed, ok = webhook.Seconds(h.stamp); !ok {
		return h, bad(s.Header, "comes without a time in Unix seconds")
	}
	return h, nil
}

// single returns the value of a header that is there once.
func single(d *inbox.Delivery, name string) (value string, err error) {
	lines := d.Header.Values(name)
	switch {
	case len(lines) == 0 || len(lines) == 1 && lines[0] == "":
		return "", &inbox.RejectError{Reason: inbox.NoSignature, Detail: name + " is missing"}
	case len(lines) > 1:
		return "", bad(name, "is there more than once")
	case len(lines[0]) > maxHeader:
		return "", bad(name, "is too long")
	}
	return lines[0], nil
}

const maxHeader = 4 << 10

func bad(header, what string) error {
	return &inbox.RejectError{Reason: inbox.BadSignature, Detail: header + " " + what}
}

func (s *Scheme) items(line string) func(yield func(string) bool) {
	if s.Separator == "" {
		return func(yield func(string) bool) { yield(line) }
	}
	return func(yield func(string) bool) {
		for item := range strings.SplitSeq(line, s.Separator) {
			if !yield(strings.TrimSpace(item)) {
				return
			}
		}
	}
}

// decode reads a signature; false if it is not one of this scheme.
func (s *Scheme) decode(text string) (mac []byte, ok bool) {
	var err error
	if s.Encoding == Base64 {
		mac, err = base64.StdEncoding.Strict().DecodeString(text)
	} else {
		mac, err = hex.DecodeString(text)
	}
	return mac, err == nil && len(mac) == s.Hash.size()
}

func (s *Scheme) wellFormed() string {
	if s.Encoding == Base64 {
		return fmt.Sprintf("%q and %d bytes in base64", s.Prefix, s.Hash.size())
	}
	return fmt.Sprintf("%q and %d hexadecimal digits", s.Prefix, 2*s.Hash.size())
}

func (h Hash) size() int {
	if h == SHA1 {
		return sha1.Size
	}
	return sha256.Size
}

// Sign puts the headers on a delivery with which the provider would send it at that
// time, for tests and for whoever plays the provider's part. Headers that are parts
// of what is signed must be there already. It fails with [inbox.ErrInvalid] where
// [New] would, and with an [*inbox.RejectError] where a part is missing.
func (s Scheme) Sign(secret string, at time.Time, d *inbox.Delivery) error {
	v, err := New(s, Secret{Value: secret})
	if err != nil {
		return err
	}
	s = v.scheme
	stamp := ""
	if s.timed() {
		stamp = strconv.FormatInt(at.Unix(), 10)
	}
	parts, err := s.parts(d, stamp, 0)
	if err != nil {
		return err
	}
	mac := webhook.SumWith(v.newHash, v.secrets[0].Value, parts...)
	value := s.Prefix + hex.EncodeToString(mac)
	if s.Encoding == Base64 {
		value = s.Prefix + base64.StdEncoding.EncodeToString(mac)
	}
	if s.TimePrefix != "" {
		value = s.TimePrefix + stamp + s.Separator + value
	}
	if s.TimeHeader != "" {
		d.Header.Set(s.TimeHeader, stamp)
	}
	d.Header.Set(s.Header, value)
	return nil
}
