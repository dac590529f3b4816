package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// HandlerOptions set up a [Handler]. The zero value of each field is a working
// default.
type HandlerOptions struct {
	// BodyLimit is the largest body in bytes. Zero means 3 MiB, since Meta's bodies
	// have up to 3 MB; the most is 16 MiB.
	BodyLimit int64

	// BodyTimeout is how long a body may take to arrive, where the connection lets
	// it be bounded. Zero means 10 seconds.
	BodyTimeout time.Duration

	// RetryAfter is what a delivery is told that the store did not take. Zero means
	// 5 seconds; it is rounded up to whole seconds.
	RetryAfter time.Duration

	// Refuse is asked before a body is read, and when it returns an error, the delivery
	// is answered with 503 and RetryAfter, counted, and sent again by its provider. It
	// guards the storage alone: that commits are slow, the disk is nearly full, the
	// connections are used up. It must not look at the backlog, at workers, or at what the
	// handlers need: those events can wait in the store and nowhere else, and
	// a provider that is refused for long stops sending. It must not block; strangers
	// reach it, too. A panic is logged and refuses nothing. Nil: nothing is refused.
	Refuse func(ctx context.Context) error
}

// Handler returns the endpoint of a provider's webhook. It verifies the raw body
// before anything else looks at it, decodes it, stores all its events in one
// step, and then answers with success. What could not be decoded is stored too,
// as it is, and answered with success: the provider would send it again for days
// and it would never be understood.
//
// The answers, in the order of the checks:
//
//   - 200, 403: the provider's handshake (GET), if the source has one
//   - 405: another method than POST
//   - 415: another type than JSON or what the source says, or an encoded body
//   - 413, 408, 400: a body that is too large, too slow or broken off
//   - 401: a signature that is missing, malformed, wrong or out of its time
//   - 503 with Retry-After: the store did not take it, or HandlerOptions.Refuse said
//     so, before the body was read; this is the only answer an authentic delivery
//     within the limits can get beside success
//   - 200: stored
//
// Rejections are counted by reason in [Box.Stats] and told to the hook, and what the
// source says in RejectError.Detail is logged at debug level; the answer gives no
// reason, since it may go to a stranger. Nothing of a body is logged.
//
// It fails with [ErrInvalid] on a nil box or source, on a box that is bound to a
// transaction, on an option outside its range, and when Options.Retention of the box is
// not longer than the source's horizon: a delivery that is sent again late would then
// be worked again.
func Handler(b *Box, s Source, opts *HandlerOptions) (http.Handler, error) {
	switch {
	case b == nil || isNil(s):
		return nil, invalid("nil box or source")
	case b.bound:
		return nil, invalid("a handler in a transaction: it would answer before the commit")
	}
	h := &handler{box: b, source: s, provider: s.Provider(), types: []string{"application/json"}}
	if opts != nil {
		h.opts = *opts
	}
	h.opts.BodyLimit = or(h.opts.BodyLimit, 3<<20)
	h.opts.BodyTimeout = or(h.opts.BodyTimeout, 10*time.Second)
	h.opts.RetryAfter = or(h.opts.RetryAfter, 5*time.Second)
	if t, ok := s.(ContentTyper); ok {
		h.types = t.ContentTypes()
	}
	if r, ok := s.(Replier); ok {
		h.replyType, h.reply = r.Reply()
	}
	switch {
	case !validName(h.provider):
		return nil, invalid("provider of %d bytes, not [A-Za-z0-9._-]{1,64}", len(h.provider))
	case h.opts.BodyLimit < 0 || h.opts.BodyLimit > maxPayload:
		return nil, invalid("body limit %d, not 1 to %d", h.opts.BodyLimit, maxPayload)
	case h.opts.BodyTimeout < 0 || h.opts.BodyTimeout > MaxDuration || h.opts.RetryAfter < 0 || h.opts.RetryAfter > MaxDuration:
		return nil, invalid("body timeout %v or retry-after %v, not 0 to %v", h.opts.BodyTimeout, h.opts.RetryAfter, MaxDuration)
	case b.opts.Retention <= s.Horizon():
		return nil, invalid("retention %v does not exceed the horizon %v of %s: an event sent again late would be worked again",
			b.opts.Retention, s.Horizon(), h.provider)
	}
	return h, nil
}

type handler struct {
	box       *Box
	source    Source
	provider  string
	opts      HandlerOptions
	types     []string
	replyType string
	reply     []byte
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	status, stored := h.serve(w, r)
	h.box.answered(r.Context(), h.provider, status, stored, time.Since(start))
}

// serve answers a request, and says with which status, and whether it was a delivery
// that is stored.
func (h *handler) serve(w http.ResponseWriter, r *http.Request) (status int, stored bool) {
	d := &Delivery{Method: r.Method, URL: target(r), Query: r.URL.Query(), Header: r.Header, Received: time.Now()}
	if r.Method == http.MethodGet {
		if hs, ok := h.source.(Handshaker); ok {
			return h.handshake(w, r, d, hs), false
		}
	}
	body, err := h.read(w, r, d)
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		return h.refuse(w, r, err), false
	}
	if err != nil {
		return h.reject(w, r, err), false
	}
	events, reason := h.box.decode(r.Context(), h.source, body)
	if _, err := h.box.acceptBody(r.Context(), h.provider, body, events, reason); err != nil {
		return h.refuse(w, r, err), false
	}
	if h.replyType != "" {
		w.Header().Set("Content-Type", h.replyType)
	}
	w.WriteHeader(http.StatusOK)
	w.Write(h.reply) // a provider that does not hear it sends again, and finds duplicates
	return http.StatusOK, true
}

// refuse tells a provider to send a delivery again.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) int {
	h.box.refused(r.Context(), h.provider, err)
	w.Header().Set("Retry-After", fmt.Sprint(int64((h.opts.RetryAfter+time.Second-1)/time.Second)))
	return plain(w, http.StatusServiceUnavailable)
}

// A refusal is an error of HandlerOptions.Refuse. What it says is the application's,
// for the hook.
type refusal struct{ err error }

func (*refusal) Error() string { return "HandlerOptions.Refuse refused it" }

func (e *refusal) Unwrap() error { return e.err }

// guard asks HandlerOptions.Refuse.
func (h *handler) guard(ctx context.Context) (err error) {
	if h.opts.Refuse == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			err = nil // a delivery is worth more than the guard
			h.box.warn(ctx, "HandlerOptions.Refuse panicked; the delivery is not refused", "provider", h.provider, "stack", stack())
		}
	}()
	if err := h.opts.Refuse(ctx); err != nil {
		return &refusal{err}
	}
	return nil
}

// target is the path and query of a request as they came, also when a mux has
// taken a prefix off the path.
func target(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	return r.URL.RequestURI()
}

func (h *handler) handshake(w http.ResponseWriter, r *http.Request, d *Delivery, hs Handshaker) int {
	answer, err := h.answer(r.Context(), d, hs)
	if err != nil {
		return h.reject(w, r, err)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff") // it echoes what the caller sent
	w.Write(answer)
	return http.StatusOK
}

// answer refuses a handshake over which the source panics or breaks its contract.
func (h *handler) answer(ctx context.Context, d *Delivery, hs Handshaker) (answer []byte, err error) {
	defer func() {
		if recover() != nil {
			answer, err = nil, &RejectError{Reason: BadHandshake}
			h.box.warn(ctx, "a source panicked over a handshake, which is refused", "provider", h.provider, "stack", stack())
		}
	}()
	answer, err = hs.Handshake(d)
	if err != nil && !errors.As(err, new(*RejectError)) {
		err = &RejectError{Reason: BadHandshake}
	}
	return answer, err
}

// read checks a request, reads its body and verifies it. The error is a
// *RejectError or a *refusal.
func (h *handler) read(w http.ResponseWriter, r *http.Request, d *Delivery) (verified []byte, err error) {
	switch {
	case r.Method != http.MethodPost:
		return nil, &RejectError{Reason: BadMethod}
	case !h.typed(r.Header):
		return nil, &RejectError{Reason: BadType}
	}
	if err := h.guard(r.Context()); err != nil {
		return nil, err
	}
	if d.Body, err = h.readBody(w, r); err != nil {
		return nil, err
	}
	return h.verify(r.Context(), d)
}

// verify lets nothing in when the source panics or breaks its contract: with an error
// of another type, or without the body, in whose place all bodies would be one.
func (h *handler) verify(ctx context.Context, d *Delivery) (verified []byte, err error) {
	defer func() {
		if recover() != nil {
			verified, err = nil, &RejectError{Reason: BadSignature}
			h.box.warn(ctx, "a source panicked over a delivery, which is rejected", "provider", h.provider, "stack", stack())
		}
	}()
	verified, err = h.source.Verify(d)
	switch {
	case err == nil && verified == nil && len(d.Body) > 0:
		h.box.warn(ctx, "a source returned no body for a delivery, which is rejected", "provider", h.provider)
		return nil, &RejectError{Reason: BadSignature}
	case err != nil && !errors.As(err, new(*RejectError)):
		return nil, &RejectError{Reason: BadSignature}
	}
	return verified, err
}

// typed reports whether the headers announce a body that the source can read.
func (h *handler) typed(header http.Header) bool {
	for _, e := range header.Values("Content-Encoding") {
		if e = strings.TrimSpace(e); e != "" && !strings.EqualFold(e, "identity") {
			return false
		}
	}
	types := header.Values("Content-Type")
	if len(types) != 1 {
		return false
	}
	media, _, err := mime.ParseMediaType(types[0])
	return (err == nil || errors.Is(err, mime.ErrInvalidMediaParameter)) && slices.Contains(h.types, media)
}

// readBody reads at most BodyLimit bytes, in at most BodyTimeout where the
// connection can be told; net/http takes the deadline back when the body has been
// read. What Content-Length says is not believed.
func (h *handler) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.opts.BodyTimeout))
	var body bytes.Buffer
	body.Grow(int(min(max(r.ContentLength, 0), 64<<10)) + bytes.MinRead)
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, h.opts.BodyLimit))
	switch {
	case err == nil:
		return body.Bytes(), nil
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, &RejectError{Reason: TooLarge}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &RejectError{Reason: TooSlow}
	}
	return nil, &RejectError{Reason: BadBody}
}

// decode decodes a verified body. A decoder that panics has not understood it,
// like one that returns an error.
func (b *Box) decode(ctx context.Context, s Source, body []byte) (events []Event, err error) {
	defer func() {
		if recover() != nil {
			events, err = nil, errors.New("the decoder panicked")
			b.warn(ctx, "a decoder panicked; the body is kept in quarantine", "provider", s.Provider(), "stack", stack())
		}
	}()
	return s.Decode(body)
}

// reject answers a delivery that is not accepted, and counts it.
func (h *handler) reject(w http.ResponseWriter, r *http.Request, err error) int {
	why := &RejectError{Reason: BadBody}
	errors.As(err, &why)
	reason := why.Reason
	h.box.rejected(r.Context(), h.provider, reason)
	if l := h.box.opts.Logger; l != nil { // strangers can make many of these
		l.DebugContext(r.Context(), "inbox: a delivery was rejected", "provider", h.provider, "reason", string(reason), "detail", why.Detail)
	}
	if reason == BadMethod {
		allow := http.MethodPost
		if _, ok := h.source.(Handshaker); ok {
			allow = http.MethodGet + ", " + allow
		}
		w.Header().Set("Allow", allow)
	}
	return plain(w, reason.status())
}

// status is the answer to a delivery that was rejected for a reason.
func (r Reason) status() int {
	switch r {
	case NoSignature, BadSignature, WrongSignature, TooOld, TooEarly:
		return http.StatusUnauthorized
	case BadHandshake:
		return http.StatusForbidden
	case BadMethod:
		return http.StatusMethodNotAllowed
	case BadType:
		return http.StatusUnsupportedMediaType
	case TooLarge:
		return http.StatusRequestEntityTooLarge
	case TooSlow:
		return http.StatusRequestTimeout
	}
	return http.StatusBadRequest
}

// plain answers with the status alone.
func plain(w http.ResponseWriter, status int) int {
	http.Error(w, http.StatusText(status), status)
	return status
}
