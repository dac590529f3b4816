package signature

import (
	"errors"
	"fmt"
	"mime"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/webhook"
)

// A Source is an [inbox.Source] and [inbox.ContentTyper] made of a verifier and a
// function that decodes. It is safe for concurrent use if the function is.
type Source struct {
	*Verifier
	o SourceOptions
}

// SourceOptions say what a [Source] is beside its verifier.
type SourceOptions struct {
	// Provider is the provider's name and the first part of every identity:
	// A-Z, a-z, 0-9, point, hyphen and underscore, at most 64 bytes. It never
	// changes, since identities are stored.
	Provider string

	// Horizon is how long the provider may re-send a delivery that was not answered
	// with success: 3 days at Stripe. Zero: it does not re-send by itself.
	Horizon time.Duration

	// Decode takes a verified body apart, under the rules of [inbox.Source]. An
	// event whose Provider is empty gets the source's, one whose Key is empty is
	// ordered with no other. Take the identity from the body, and begin it with the
	// provider's name and a slash.
	Decode func(body []byte) ([]inbox.Event, error)

	// ContentTypes are the media types of the bodies, in lower case. None means
	// application/json; Twilio and Slack's commands send
	// application/x-www-form-urlencoded.
	ContentTypes []string
}

// NewSource returns a source. It fails with [inbox.ErrInvalid] on a nil verifier,
// without options or a function that decodes, and on a name, a horizon or a media
// type outside its range. The options are copied.
func NewSource(v *Verifier, opts *SourceOptions) (*Source, error) {
	if v == nil || opts == nil || opts.Decode == nil {
		return nil, fmt.Errorf("signature: new source: %w: no verifier or no function that decodes", inbox.ErrInvalid)
	}
	s := &Source{Verifier: v, o: *opts}
	s.o.ContentTypes = slices.Clone(opts.ContentTypes)
	if len(s.o.ContentTypes) == 0 {
		s.o.ContentTypes = []string{"application/json"}
	}
	if err := s.o.check(); err != nil {
		return nil, fmt.Errorf("signature: new source: %w: %w", inbox.ErrInvalid, err)
	}
	return s, nil
}

func (o *SourceOptions) check() error {
	switch {
	case len(o.Provider) > 64 || o.Provider == "" || webhook.Word(o.Provider) != o.Provider:
		return fmt.Errorf("provider of %d bytes, not [A-Za-z0-9._-]{1,64}", len(o.Provider))
	case o.Horizon < 0:
		return fmt.Errorf("negative horizon %v", o.Horizon)
	}
	for _, t := range o.ContentTypes {
		if media, params, err := mime.ParseMediaType(t); err != nil || media != t || len(params) > 0 || !strings.Contains(t, "/") {
			return errors.New("a content type that is not a media type in lower case without parameters")
		}
	}
	return nil
}

// Provider returns the name in the options.
func (s *Source) Provider() string { return s.o.Provider }

// Horizon returns the horizon in the options.
func (s *Source) Horizon() time.Duration { return s.o.Horizon }

// ContentTypes returns the media types in the options.
func (s *Source) ContentTypes() []string { return slices.Clone(s.o.ContentTypes) }

// Decode calls the function in the options.
func (s *Source) Decode(body []byte) ([]inbox.Event, error) {
	events, err := s.o.Decode(body)
	for i := range events {
		if events[i].Provider == "" {
			events[i].Provider = s.o.Provider
		}
	}
	return events, err
}

// String hides the secrets.
func (s *Source) String() string { return "signature.Source" }

// GoString hides the secrets.
func (s *Source) GoString() string { return "signature.Source" }

var (
	_ inbox.Source       = (*Source)(nil)
	_ inbox.ContentTyper = (*Source)(nil)
)
