// Package ycloud asks YCloud for WhatsApp messages that were sent through it, as a
// [reconcile.Provider]: GET /v2/whatsapp/messages/{id}
// (https://github.com/YCloud-Developers/ycloud-sdk-go/blob/main/docs/WhatsAppMessagesApi.md).
//
// It tells what YCloud says, with the times that YCloud gives, and keeps nothing of the
// message: no text, no number. What is not guaranteed is that YCloud's view is the
// recipient's.
//
// The endpoint shares a quota of 200 requests a second and 10,000 an hour with the other
// management endpoints of the account
// (https://docs.ycloud.com/en/api-reference/guides/api-fundamentals/rate-limits): bound what
// you ask by reconcile.Comparison.Limit and PerPass. A 429 and its Retry-After stop the asking
// for that long: see [Client.Lookup].
package ycloud

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/retry"
)

// A Client is a [reconcile.Provider] over YCloud's API. It is safe for concurrent use.
type Client struct {
	opts Options
	key  Secret
	base string

	mu    sync.Mutex
	until time.Time // when it may ask again
}

// A Secret is an API key. It does not print.
type Secret string

// String hides the key.
func (Secret) String() string { return "[hidden]" }

// GoString hides the key.
func (Secret) GoString() string { return "[hidden]" }

// LogValue hides the key.
func (Secret) LogValue() slog.Value { return slog.StringValue("[hidden]") }

// MarshalText hides the key.
func (Secret) MarshalText() ([]byte, error) { return []byte("[hidden]"), nil }

// Options set up a [Client]. The zero value of each field is a working default.
type Options struct {
	// HTTP sends the requests. Nil means a client with defaults. It is copied, and follows no
	// redirect unless its CheckRedirect says so, since the key would go along.
	HTTP *http.Client
	// BaseURL is where the API is. Empty means https://api.ycloud.com/v2. It must be https,
	// except to a loopback address.
	BaseURL string
	// Timeout bounds one request. Zero means 10 seconds.
	Timeout time.Duration
}

// New returns a client that sends the API key as X-API-Key. It fails with
// [reconcile.ErrInvalid] on a key that is empty or no header value, and on an option outside
// its range. It does no I/O.
func New(apiKey Secret, opts *Options) (*Client, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.BaseURL = strings.TrimSuffix(cmp.Or(o.BaseURL, "https://api.ycloud.com/v2"), "/")
	var client http.Client
	if o.HTTP != nil {
		client = *o.HTTP
	}
	if client.CheckRedirect == nil {
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	o.HTTP = &client
	u, err := url.Parse(o.BaseURL)
	switch {
	case apiKey == "" || strings.ContainsFunc(string(apiKey), func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return nil, fmt.Errorf("%w: an API key that is empty, or is not visible ASCII", reconcile.ErrInvalid)
	case err != nil || u.Host == "" || u.RawQuery != "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())):
		return nil, fmt.Errorf("%w: a base URL that is not https://host/path", reconcile.ErrInvalid)
	case o.Timeout < 0:
		return nil, fmt.Errorf("%w: timeout %v", reconcile.ErrInvalid, o.Timeout)
	}
	return &Client{opts: o, key: apiKey, base: o.BaseURL}, nil
}

func loopback(host string) bool { return host == "localhost" || host == "127.0.0.1" || host == "::1" }

// maxBody is what is read of an answer: a message with its template is far smaller.
const maxBody = 1 << 20

// Lookup asks for a message by YCloud's own ID of it, which the answer to sending it has as
// "id"; by a wamid YCloud does not find it. The observations have it as Message, and
// the externalId as Own; they are accepted, sent, delivered, read and failed, each if YCloud
// gives its time, and the status itself in any case.
//
// [reconcile.ErrNoMessage]: YCloud answered 404. A [*retry.StatusError], wrapped: it answered
// otherwise; after a 429 or 503 nothing is asked until Retry-After has passed, a second to an hour, and
// Lookup fails with the same error at once. [reconcile.ErrInvalid]: an ID that cannot be asked
// for. Anything else: no answer, or none that can be read. No error has the ID, the key, or
// what was answered.
func (c *Client) Lookup(ctx context.Context, messageID string) ([]reconcile.Observation, error) {
	if messageID == "" || len(messageID) > reconcile.MaxKey || !utf8.ValidString(messageID) || strings.Trim(messageID, ".") == "" {
		return nil, fmt.Errorf("%w: a message ID of %d bytes, or none that can stand in a path", reconcile.ErrInvalid, len(messageID))
	}
	if err := c.paused(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/whatsapp/messages/"+url.PathEscape(messageID), nil)
	if err != nil {
		return nil, errors.New("ycloud: the request could not be made")
	}
	req.Header.Set("X-API-Key", string(c.key))
	req.Header.Set("Accept", "application/json")
	resp, err := c.opts.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ycloud: no answer: %w", bare(err))
	}
	defer resp.Body.Close()
	if err := c.status(resp); err != nil {
		_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be used again
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("ycloud: the answer ended early: %w", bare(err))
	case len(body) > maxBody:
		return nil, fmt.Errorf("ycloud: an answer of more than %d bytes", maxBody)
	}
	return decode(body, messageID)
}

// status says what a status code comes to.
func (c *Client) status(resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	err := retry.Status(resp.StatusCode, resp.Header)
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return fmt.Errorf("ycloud: %w", reconcile.ErrNoMessage)
	case err == nil:
		err = &retry.StatusError{Code: resp.StatusCode}
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable:
		c.pause(err)
	}
	return fmt.Errorf("ycloud: %w", err)
}

// pause keeps the client from asking for as long as YCloud says.
func (c *Client) pause(err error) {
	wait := time.Second
	if s := (*retry.StatusError)(nil); errors.As(err, &s) {
		wait = max(wait, min(s.After, time.Hour))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if until := time.Now().Add(wait); until.After(c.until) {
		c.until = until
	}
}

func (c *Client) paused() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if left := time.Until(c.until); left > 0 {
		return fmt.Errorf("ycloud: not asked: %w", &retry.StatusError{Code: http.StatusTooManyRequests, After: left})
	}
	return nil
}

// bare is the cause in an error of a client, whose text repeats the URL with the ID.
func bare(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err
	}
	for _, known := range []error{context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, known) {
			return known
		}
	}
	return fmt.Errorf("%T", err)
}

// answer is what is read of a message
// (https://github.com/YCloud-Developers/ycloud-sdk-go/blob/main/docs/WhatsappMessage.md).
type answer struct {
	ID          string    `json:"id"`
	Status      string    `json:"status"`
	ExternalID  string    `json:"externalId"`
	ErrorCode   any       `json:"errorCode"`
	CreateTime  timestamp `json:"createTime"`
	UpdateTime  timestamp `json:"updateTime"`
	SendTime    timestamp `json:"sendTime"`
	DeliverTime timestamp `json:"deliverTime"`
	ReadTime    timestamp `json:"readTime"`
}

// A timestamp is one that can be read, or none.
type timestamp struct{ time.Time }

func (t *timestamp) UnmarshalJSON(text []byte) error {
	t.Time, _ = time.Parse(`"`+time.RFC3339+`"`, string(text))
	return nil
}

func decode(body []byte, messageID string) ([]reconcile.Observation, error) {
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, errors.New("ycloud: the answer is no message") // the error may quote it
	}
	switch {
	case a.ID != messageID:
		return nil, errors.New("ycloud: the answer is another message, or none")
	case a.Status == "" || len(a.Status) > 64:
		return nil, fmt.Errorf("ycloud: the answer has a status of %d bytes, not 1 to 64", len(a.Status))
	}
	times := []struct {
		status string
		at     timestamp
	}{{"accepted", a.CreateTime}, {"sent", a.SendTime}, {"delivered", a.DeliverTime}, {"read", a.ReadTime}}
	var said []reconcile.Observation
	add := func(status string, at timestamp) {
		o := reconcile.Observation{Ref: reconcile.Ref{Message: a.ID, Own: own(a.ExternalID)}, Status: status, Source: reconcile.SourceLookup, Said: at.Time}
		if status == "failed" {
			o.Code = code(a.ErrorCode)
		}
		said = append(said, o)
	}
	known := false
	for _, t := range times {
		if !t.at.IsZero() {
			add(t.status, t.at)
			known = known || t.status == a.Status
		}
	}
	if !known {
		add(a.Status, a.UpdateTime)
	}
	return said, nil
}

// own is an external ID as far as a timeline takes it.
func own(id string) string {
	if len(id) > reconcile.MaxKey || strings.IndexByte(id, 0) >= 0 || strings.HasPrefix(id, "+") {
		return ""
	}
	return id
}

// code is an error code, which is a string or a number.
func code(v any) string {
	s := ""
	switch v := v.(type) {
	case string:
		s = v
	case float64:
		s = fmt.Sprintf("%.0f", v)
	}
	if len(s) > 64 || strings.IndexByte(s, 0) >= 0 {
		return ""
	}
	return s
}
