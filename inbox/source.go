package inbox

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// A Source knows one provider's webhook: how it is signed and what its bodies
// mean. The packages whatsapp and ycloud have one each. A Source is safe for
// concurrent use and does no I/O.
type Source interface {
	// Provider is the provider's name and the first part of every identity:
	// "meta", "ycloud". It never changes, since identities are stored.
	Provider() string

	// Horizon is how long the provider may re-send a delivery that was not
	// answered with success. A box refuses a shorter retention.
	Horizon() time.Duration

	// Verify checks that the provider sent the delivery, as of d.Received, over
	// the raw bytes and before anything else looks at them. It returns the body to
	// decode, which is d.Body unless the provider encrypts it or signs something
	// beside it that Decode has to know. The error is a *RejectError.
	Verify(d *Delivery) (body []byte, err error)

	// Decode takes a verified body apart into events, in the order of the body. It
	// keeps what it does not know: an unknown type is an event like any other.
	// With an error, some part of the body could not be decoded; the events are
	// the part that could, and the box keeps the whole body in quarantine.
	Decode(body []byte) ([]Event, error)
}

// A Handshaker is a Source whose provider verifies the endpoint with a GET
// request before it sends anything.
type Handshaker interface {
	// Handshake returns the body of the answer, or a *RejectError.
	Handshake(d *Delivery) (answer []byte, err error)
}

// A ContentTyper is a Source whose bodies are not JSON. [Handler] refuses a body
// of another type.
type ContentTyper interface {
	// ContentTypes are the media types of the provider's bodies, in lower case and
	// without parameters: "text/xml".
	ContentTypes() []string
}

// A Replier is a Source whose provider expects a body in the answer of success.
type Replier interface {
	Reply() (contentType string, body []byte)
}

// A Delivery is one HTTP request as it arrived.
type Delivery struct {
	Method string
	// URL is the target of the request, path and query as they came. It has no
	// scheme and host: behind a proxy they are not those the provider wrote.
	URL      string
	Query    url.Values
	Header   http.Header
	Body     []byte // raw
	Received time.Time
}

// An Event is one thing that the provider says has happened.
type Event struct {
	// ID is the event's identity: provider/..., made from signed bytes only. It
	// contains personal data where the provider's IDs do (a WhatsApp message ID
	// contains the customer's number).
	ID string
	// Provider is Source.Provider.
	Provider string
	// Type is the provider's own word, as specific as the body is: for Meta the
	// field, the array and the element's type or status, as in
	// "messages.messages.text". Decode of each source says what it sets.
	Type string
	// Version is the schema version that the body names; empty if none.
	Version string
	// Key is the ordering key: events of one key are worked one after another.
	// Empty: the event is ordered with no other, and its records have its ID as key.
	Key string
	// Fingerprinted says that the provider gives no ID for such events, so that ID
	// is a digest of the immutable fields: two events that are alike in them are
	// taken for one.
	Fingerprinted bool
	// Unknown says that the source does not know the type; the event is kept all
	// the same.
	Unknown bool
	// Occurred is when the provider says it happened, in the years 1 to 9999; zero if
	// it does not say.
	Occurred time.Time
	// The account (a WABA), the business phone number, the provider's message ID
	// and the sender's own ID that it echoes; each empty if the body has none.
	Account, Phone, MessageID, ExternalID string
	// Payload is the event's own element, byte for byte as it was received. The
	// same ID with another payload is a conflict.
	Payload []byte
	// Trace is the trace context in which the event arrived, as Options.Trace gave
	// it; at most 1,024 bytes. Sources leave it empty.
	Trace string
	// Context is what the body says around the element and a handler needs to
	// understand it, as JSON: the entry, the field, the metadata, the contact.
	Context []byte
}

// A RejectError says why a delivery was not accepted. Its text names no secret
// and no part of the body.
type RejectError struct {
	Reason Reason
	Detail string // for a person, logged at debug level; may be empty
}

func (e *RejectError) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("inbox: delivery rejected: %s", e.Reason)
	}
	return fmt.Sprintf("inbox: delivery rejected: %s: %s", e.Reason, e.Detail)
}

// Is reports whether target is [ErrRejected].
func (e *RejectError) Is(target error) bool { return target == ErrRejected }

// ErrRejected is what every [RejectError] is.
var ErrRejected = errors.New("inbox: delivery rejected")

// A Reason is why a delivery was rejected. It is a bounded set, fit for metrics.
type Reason string

// The reasons.
const (
	NoSignature    Reason = "no signature"
	BadSignature   Reason = "malformed signature"
	WrongSignature Reason = "wrong signature" // none of the live secrets made it
	TooOld         Reason = "signed too long ago"
	TooEarly       Reason = "signed in the future"
	BadHandshake   Reason = "handshake failed"
	BadMethod      Reason = "method not allowed"
	BadType        Reason = "content type not supported"
	TooLarge       Reason = "body too large"
	TooSlow        Reason = "body came too slowly"
	BadBody        Reason = "body could not be read"
)
