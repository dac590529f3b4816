package signature

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// checked returns a copy of the scheme with its defaults, or what is wrong with
// it. What it refuses would verify less than its writer believes, or nothing.
func (s Scheme) checked() (Scheme, error) {
	s.Signed = slices.Clone(s.Signed)
	switch {
	case s.Header == "":
		return s, errors.New("no header for the signature")
	case s.Key.kind == 0:
		return s, errors.New("no key rule; state how a secret becomes a key, since its form does not say")
	case s.Hash != SHA256 && s.Hash != SHA1:
		return s, fmt.Errorf("hash %d", s.Hash)
	case s.Encoding != Hex && s.Encoding != Base64:
		return s, fmt.Errorf("encoding %d", s.Encoding)
	case s.TimePrefix != "" && s.TimeHeader != "":
		return s, errors.New("both a TimePrefix and a TimeHeader")
	case s.TimePrefix != "" && s.Separator == "":
		return s, errors.New("a TimePrefix without a Separator")
	case s.TimePrefix != "" && (strings.HasPrefix(s.Prefix, s.TimePrefix) || strings.HasPrefix(s.TimePrefix, s.Prefix)):
		return s, errors.New("the prefixes do not tell a signature from a time")
	case s.Tolerance < 0 || s.Skew < 0:
		return s, fmt.Errorf("negative tolerance %v or skew %v", s.Tolerance, s.Skew)
	case !s.timed() && (s.Tolerance != 0 || s.Skew != 0):
		return s, errors.New("a tolerance or skew without a time")
	}
	if err := s.checkParts(); err != nil {
		return s, err
	}
	if s.timed() && s.Tolerance == 0 {
		s.Tolerance = 5 * time.Minute
	}
	if s.timed() && s.Skew == 0 {
		s.Skew = 5 * time.Minute
	}
	return s, nil
}

func (s *Scheme) timed() bool { return s.TimePrefix != "" || s.TimeHeader != "" }

func (s *Scheme) checkParts() error {
	n := make(map[partKind]int)
	for i, p := range s.Signed {
		n[p.kind]++
		switch {
		case p.kind == 0:
			return fmt.Errorf("part %d is the zero part", i+1)
		case (p.kind == partHeader || p.kind == partDigest) && p.text == "":
			return fmt.Errorf("part %d has no name", i+1)
		case p.kind == partURL:
			if err := checkURLs(p.urls); err != nil {
				return fmt.Errorf("part %d: %w", i+1, err)
			}
		}
	}
	switch {
	case n[partBody]+n[partForm]+n[partDigest] == 0:
		return errors.New("the body is not signed; list Body, SortedForm or QueryDigest")
	case s.timed() && n[partTime] == 0:
		return errors.New("the time is not signed; list Time")
	case !s.timed() && n[partTime] > 0:
		return errors.New("the time is signed, but neither TimePrefix nor TimeHeader says where it stands")
	case n[partURL] > 1:
		return errors.New("more than one URL")
	case n[partDigest] > 0 && n[partURL] == 0:
		return errors.New("QueryDigest without URL: the digest itself is not signed")
	}
	return nil
}

// maxURLs bounds the work that a forged delivery can cause.
const maxURLs = 4

func checkURLs(urls []string) error {
	if len(urls) == 0 || len(urls) > maxURLs {
		return fmt.Errorf("%d public URLs, not 1 to %d", len(urls), maxURLs)
	}
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "" ||
			u.User != nil || strings.HasSuffix(text, "/") || strings.ContainsAny(text, "?#") {
			return errors.New("a public URL is http:// or https:// with a host and, if need be, the beginning of the path, without a slash at the end")
		}
	}
	return nil
}
