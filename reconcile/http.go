package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/pawl-go/pawl/retry"
)

// SendHTTP sends a request for a [CallFunc] and says what follows for the operation. A
// response with a status of 2xx is returned, and its body is the caller's to read and to
// close. Otherwise the body is closed and the error is
//
//   - marked [NotDone] if no connection was had for the request, which the transport of
//     net/http says through [httptrace], or if the remote answered 425 or 429: it did not
//     take it, for now;
//   - marked [Refused] if the remote answered with another 4xx, except those below;
//   - unmarked, and so Unknown, after anything else: an error once there was a connection,
//     because the request may have been written, any 3xx or 5xx, 408, 409 and 423.
//
// A client whose transport does not report to httptrace gets no NotDone for its errors.
// That a connection was had, and not that the request was written, is what decides: the
// second is reported by another goroutine, possibly after the request was cancelled.
//
// The error has the status, as a [*retry.StatusError] with what Retry-After said, or the
// cause, and neither URL nor body. A nil client means [http.DefaultClient]. A 409 is unknown because servers give it to a request whose
// key is in use by one that still runs
// (https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header).
func SendHTTP(c *http.Client, r *http.Request) (*http.Response, error) {
	if c == nil {
		c = http.DefaultClient
	}
	var asked, had atomic.Bool
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { had.Store(true) },
	}
	resp, err := c.Do(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err != nil {
		if resp != nil { // a redirect that was not followed
			resp.Body.Close()
			had.Store(true)
		}
		if asked.Load() && !had.Load() {
			return nil, NotDone(&httpError{bare(err)})
		}
		return nil, &httpError{bare(err)}
	}
	if err := CheckStatus(resp.StatusCode, resp.Header); err != nil {
		_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be used again
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// CheckStatus is what [SendHTTP] makes of an answer: nil for 2xx, otherwise a
// [*retry.StatusError] with its mark.
func CheckStatus(code int, header http.Header) error {
	err := retry.Status(code, header)
	switch {
	case code >= 200 && code <= 299:
		return nil
	case err == nil:
		return &retry.StatusError{Code: code}
	case code == 425 || code == 429:
		return NotDone(err)
	case code == 408 || code == 409 || code == 423 || code > 499:
		return err
	}
	return Refused(err)
}

// An httpError is the failure of a request that had no answer. Its text is that of the
// network; of other errors, which may repeat a URL, it is their type.
type httpError struct{ err error }

func (e *httpError) Error() string {
	for _, known := range []error{context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(e.err, known) {
			return "no HTTP answer: " + known.Error()
		}
	}
	if op := (*net.OpError)(nil); errors.As(e.err, &op) {
		return "no HTTP answer: " + op.Error()
	}
	return fmt.Sprintf("no HTTP answer: %T", e.err)
}

func (e *httpError) Unwrap() error { return e.err }

// bare is the cause in an error of a client, which repeats the URL with its query.
func bare(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}

// IdempotencyHeader returns a transport that sends the key of the operation, on whose
// behalf a request is made, in the header of that name: requests whose context comes from a
// [CallFunc]. Requests that have the header keep theirs, and others are not touched; nor are
// those that a redirect sends to another host. A nil next means [http.DefaultTransport]. It
// fails with [ErrInvalid] on a name that is none.
//
// A key that is not visible ASCII of at most 255 bytes is sent as the SHA-256 of it, in
// hex: the same on every attempt, too.
//
// The transport of net/http sends a request with the header Idempotency-Key or
// X-Idempotency-Key again by itself when a connection that it had kept breaks, under the
// same key.
func IdempotencyHeader(name string, next http.RoundTripper) (http.RoundTripper, error) {
	if name == "" || strings.Trim(name, headerChars) != "" {
		return nil, invalid("header name of %d bytes", len(name))
	}
	if next == nil {
		next = http.DefaultTransport
	}
	return &keyed{name: name, next: next}, nil
}

const headerChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

type keyed struct {
	name string
	next http.RoundTripper
}

func (k *keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	key, ok := KeyFrom(r.Context())
	if !ok || r.Header.Get(k.name) != "" || elsewhere(r) {
		return k.next.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.Header.Set(k.name, HeaderKey(key))
	return k.next.RoundTrip(r)
}

// elsewhere says that a redirect sent the request to another host than the first.
func elsewhere(r *http.Request) bool {
	first := r
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	return first.URL.Host != r.URL.Host
}

// HeaderKey is a key as [IdempotencyHeader] sends it.
func HeaderKey(key string) string {
	plain := len(key) <= 255
	for _, c := range []byte(key) {
		plain = plain && c > ' ' && c < 0x7f
	}
	if plain {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}
