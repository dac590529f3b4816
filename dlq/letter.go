package dlq

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawl-go/pawl/internal/seal"
)

// A Message is what could not be processed, or waits behind what could not.
type Message struct {
	// Stream is what works the message, [A-Za-z0-9._-]{1,64}: a dependency and an
	// operation, since letters of one stream share handler and schedule.
	Stream string
	// ID is the message's original identity, 1 to 512 bytes of UTF-8 without NUL: the
	// one under which the guards of its effects know it.
	ID string
	// Key is the ordering key, at most 512 bytes: letters of a key are worked one after
	// another. Empty: the message is in order with no other.
	Key string
	// Payload is at most Options.MaxPayload long.
	Payload []byte
	// Headers are at most 64, together at most 16 KiB of UTF-8. The trace context
	// belongs here, see [Trace].
	Headers map[string]string
}

// Content is what a person may edit of a letter.
type Content struct {
	Payload []byte
	Headers map[string]string
}

// A Letter is a message that could not be processed, with what is known of why. Its
// fields are as those of [Record] where they have the same names.
type Letter struct {
	Stream, ID, Key string
	Seq             uint64
	State           State
	Aside           bool
	Payload         []byte
	Headers         map[string]string
	// Original is the content before the first edit; nil if there was none.
	Original *Content
	// Digest tells contents apart. With Options.Keys it is keyed; without, it is a plain
	// SHA-256, and who can see it can check guesses of a short payload.
	Digest [32]byte
	// Attempts are the first that failed, and the last [LogLast], as they were. Folds
	// and Others count those in between.
	Attempts    []Attempt
	Folds       []Fold
	Others      int
	Fingerprint string
	Tries       int
	Job         string
	Put         time.Time
	Next        time.Time
	Settled     time.Time
	Expires     time.Time
	// Unopened says why Payload and Headers are empty although the letter has a body:
	// it is [ErrSealed]. In lists it is nil, and they are empty all the same.
	// OriginalUnopened says the same of Original, and keeps no letter from being worked.
	Unopened, OriginalUnopened error
}

// HeaderReturned is set on letters that RunOptions.Return gets, to the letter's number.
// [Queue.Park] lets a message with it pass, so take it out of what comes from elsewhere.
// It is not stored, and is none of the headers that Message.Headers allows.
const HeaderReturned = "pawl-dlq-returned"

const (
	// DefaultMaxPayload is the longest payload unless Options.MaxPayload says otherwise.
	DefaultMaxPayload = 1 << 20
	maxMaxPayload     = 16 << 20
	maxHeaders        = 64
	maxHeaderBytes    = 16 << 10
)

// A Key seals bodies: 32 random bytes, and the name by which sealed bodies refer to
// them, which is stored in clear: 1 to 64 bytes of [A-Za-z0-9._-]. It prints as
// [secret].
type Key struct {
	ID     string
	Secret []byte
}

// String hides the key.
func (Key) String() string { return seal.Redacted }

// GoString hides the key.
func (Key) GoString() string { return seal.Redacted }

// LogValue hides the key.
func (Key) LogValue() slog.Value { return slog.StringValue(seal.Redacted) }

// MarshalText hides the key.
func (Key) MarshalText() ([]byte, error) { return []byte(seal.Redacted), nil }

// newRing makes the ring of the options' keys; nil if there are none.
func newRing(keys []Key) (*seal.Ring, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	own := make([]seal.Key, len(keys))
	for i, k := range keys {
		own[i] = seal.Key(k)
	}
	ring, err := seal.NewRing(own)
	if err != nil {
		return nil, invalid("keys: %w", err)
	}
	return ring, nil
}

// The kinds to which sealed texts are bound, beside the identity of their letter.
const (
	sealBody   = "dlq body"
	sealDigest = "dlq digest"
)

// The first byte of a stored body.
const (
	bodyPlain  = 1
	bodySealed = 2
)

// encode makes of a content what a store keeps, and its digest.
func (c *core) encode(stream, id string, content Content) (body []byte, digest [32]byte) {
	n := len(content.Payload) + 16
	for k, v := range content.Headers {
		n += len(k) + len(v) + 6
	}
	plain := binary.AppendUvarint(append(make([]byte, 0, n), bodyPlain), uint64(len(content.Headers)))
	for _, k := range slices.Sorted(maps.Keys(content.Headers)) { // the same content has the same digest
		plain = appendText(appendText(plain, k), content.Headers[k])
	}
	plain = append(plain, content.Payload...)
	if c.ring == nil {
		return plain, sha256.Sum256(plain)
	}
	sealed := c.ring.Seal(sealBody, rowOf(stream, id), plain)
	return append([]byte{bodySealed}, sealed...), c.ring.Digest(sealDigest, plain)
}

func rowOf(stream, id string) string { return stream + "\x00" + id }

// decode is the reverse of encode. The error is ErrSealed.
func (c *core) decode(stream, id string, body []byte) (Content, error) {
	if len(body) > 0 && body[0] == bodySealed {
		if c.ring == nil {
			return Content{}, fmt.Errorf("%w: letter %s is sealed, and there are no keys", ErrSealed, short(id))
		}
		plain, err := c.ring.Open(sealBody, rowOf(stream, id), body[1:])
		if err != nil {
			return Content{}, fmt.Errorf("%w: letter %s: %w", ErrSealed, short(id), err)
		}
		body = plain
	}
	r := reader{rest: body}
	version := r.byte()
	n := r.number(maxHeaders)
	content := Content{}
	for range n {
		if content.Headers == nil {
			content.Headers = make(map[string]string, n)
		}
		k := r.text()
		content.Headers[k] = r.text()
	}
	if version != bodyPlain || r.bad {
		return Content{}, fmt.Errorf("%w: the body of letter %s is not of a known version", ErrSealed, short(id))
	}
	content.Payload = r.rest
	return content, nil
}

// letter makes a letter of a record. A body that cannot be opened is Unopened.
func (c *core) letter(r *Record) Letter {
	l := Letter{
		Stream: r.Stream, ID: r.ID, Key: r.Key, Seq: r.Seq, State: r.State, Aside: r.Aside, Digest: r.Digest,
		Folds: r.Log.Folds, Others: r.Log.Others, Fingerprint: r.Fingerprint, Tries: r.Tries, Job: r.Job,
		Put: r.Put, Next: r.Next, Settled: r.Settled, Expires: r.Expires,
	}
	if r.Log.First.Fingerprint != "" {
		l.Attempts = append(l.Attempts, attemptOf(r.Log.First))
	}
	for _, f := range r.Log.Last {
		l.Attempts = append(l.Attempts, attemptOf(f))
	}
	if r.Body != nil {
		content, err := c.decode(r.Stream, r.ID, r.Body)
		l.Payload, l.Headers, l.Unopened = content.Payload, content.Headers, err
	}
	if r.Original != nil {
		content, err := c.decode(r.Stream, r.ID, r.Original)
		l.Original, l.OriginalUnopened = &content, err
	}
	return l
}

// validate says what is wrong with a message.
func (c *core) validate(m *Message) error {
	if err := validName("stream", m.Stream); err != nil {
		return err
	}
	if err := validID("ID", m.ID); err != nil {
		return err
	}
	if m.Key != "" {
		if err := validID("key", m.Key); err != nil {
			return err
		}
	}
	return c.validContent(Content{m.Payload, m.Headers})
}

func (c *core) validContent(content Content) error {
	if n := len(content.Payload); n > c.opts.MaxPayload {
		return &SizeError{"payload", n, c.opts.MaxPayload}
	}
	if n := len(content.Headers); n > maxHeaders {
		return &SizeError{"header entries", n, maxHeaders}
	}
	n := 0
	for k, v := range content.Headers {
		n += len(k) + len(v)
		if k == "" || !utf8.ValidString(k) || !utf8.ValidString(v) || strings.IndexByte(k+v, 0) >= 0 {
			return invalid("a header without name, or not UTF-8 without NUL")
		}
	}
	if n > maxHeaderBytes {
		return &SizeError{"headers", n, maxHeaderBytes}
	}
	return nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// A reader reads what was appended. It never reads beyond the end.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.bad = true
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) number(most int) int {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > uint64(most) {
		r.bad = true
		return 0
	}
	r.rest = r.rest[size:]
	return int(n)
}

func (r *reader) text() string {
	n := r.number(len(r.rest))
	if n > len(r.rest) {
		r.bad = true
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}
