package webhooktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// A Door is a source behind inbox.Handler, over a box in memory.
type Door struct {
	Box     *inbox.Box
	handler http.Handler
	sign    func(body []byte) http.Header
	log     *bytes.Buffer
}

// bodyLimit of a door.
const bodyLimit = 1 << 20

// NewDoor returns one whose deliveries are signed by sign.
func NewDoor(t testing.TB, s inbox.Source, sign func(body []byte) http.Header) *Door {
	t.Helper()
	d := &Door{sign: sign, log: new(bytes.Buffer)}
	var err error
	d.Box, err = inbox.New(inbox.NewMemory(), &inbox.Options{Logger: slog.New(slog.NewTextHandler(d.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if d.handler, err = inbox.Handler(d.Box, s, &inbox.HandlerOptions{BodyLimit: bodyLimit}); err != nil {
		t.Fatal(err)
	}
	return d
}

// Post delivers a signed body and returns the status of the answer. The changes are
// made to the signed request.
func (d *Door) Post(body []byte, changes ...func(*http.Request)) (status int) {
	r := httptest.NewRequest(http.MethodPost, "/hook", bytes.NewReader(body))
	r.Header = d.sign(body)
	r.Header.Set("Content-Type", "application/json")
	for _, change := range changes {
		change(r)
	}
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	return w.Code
}

// TestDoor posts what goes wrong on the way to any source and checks that nothing
// is let in that is not signed, and nothing is lost that is: what cannot be decoded
// lies in quarantine as it came. Body is a good body in ASCII whose events are
// new to each other, and which has "secret" somewhere in it.
func TestDoor(t *testing.T, s inbox.Source, signature string, body []byte, sign func(body []byte) http.Header) {
	events, err := s.Decode(mustVerify(t, s, body, sign))
	if err != nil || len(events) == 0 || !bytes.Contains(body, []byte("secret")) {
		t.Fatalf("the good body has %d events, %v", len(events), err)
	}
	t.Run("undecodable", func(t *testing.T) { testUndecodable(t, s, body, sign) })
	t.Run("readable", func(t *testing.T) {
		for name, b := range map[string][]byte{
			"as it is":        body,
			"byte order mark": append([]byte("\xef\xbb\xbf"), body...),
			"space around":    []byte(" \r\n\t" + string(body) + "\n\n"),
			"at the limit":    append(bytes.Clone(body), bytes.Repeat([]byte(" "), bodyLimit-len(body))...),
			"not UTF-8":       bytes.Replace(body, []byte("secret"), []byte("secr\xfft"), 1),
			"an escaped NUL":  bytes.Replace(body, []byte("secret"), []byte(`secret\u0000`), 1),
			"half a pair":     bytes.Replace(body, []byte("secret"), []byte(`secret\ud800`), 1),
		} {
			d := NewDoor(t, s, sign)
			if status := d.Post(b); status != http.StatusOK {
				t.Errorf("%s: answered %d", name, status)
			}
			if st := d.Box.Stats(); st.Accepted != uint64(len(events)) || st.Quarantined != 0 {
				t.Errorf("%s: %d of %d events were accepted, %d bodies quarantined", name, st.Accepted, len(events), st.Quarantined)
			}
		}
	})
	t.Run("again", func(t *testing.T) {
		d := NewDoor(t, s, sign)
		for range 3 {
			if status := d.Post(body); status != http.StatusOK {
				t.Errorf("answered %d", status)
			}
		}
		if st := d.Box.Stats(); st.Accepted != uint64(len(events)) || st.Duplicates != 2*uint64(len(events)) || st.Conflicts != 0 {
			t.Errorf("the counts are %+v", st)
		}
	})
	t.Run("refused", func(t *testing.T) { testRefused(t, s, signature, body, sign) })
}

func testUndecodable(t *testing.T, s inbox.Source, body []byte, sign func([]byte) http.Header) {
	bodies := map[string][]byte{
		"empty":           {},
		"space":           []byte(" \n"),
		"an array":        []byte(`["secret"]`),
		"an empty array":  []byte(`[]`),
		"a text":          []byte(`"secret"`),
		"a number":        []byte(`1e400`),
		"null":            []byte(`null`),
		"two bodies":      append(bytes.Clone(body), body...),
		"more behind":     append(bytes.Clone(body), '}'),
		"NUL behind":      append(bytes.Clone(body), 0),
		"NUL within":      bytes.Replace(body, []byte("secret"), []byte("sec\x00ret"), 1),
		"UTF-16":          []byte("\xff\xfe{\x00}\x00"),
		"two marks":       append([]byte("\xef\xbb\xbf\xef\xbb\xbf"), body...),
		"deep":            []byte(strings.Repeat(`{"secret":`, 50_000)),
		"deep and closed": []byte(`{"secret":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`),
		"single quotes":   bytes.ReplaceAll(body, []byte(`"`), []byte(`'`)),
		"XML":             []byte(`<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/secret">]><a>&e;</a>`),
	}
	for i := 1; i < 8; i++ {
		bodies[fmt.Sprintf("cut at %d of 8", i)] = body[:len(body)*i/8]
	}
	for name, b := range bodies {
		d := NewDoor(t, s, sign)
		for range 2 {
			if status := d.Post(b); status != http.StatusOK {
				t.Errorf("%s: answered %d; it would be sent again for days", name, status)
			}
		}
		kept, err := d.Box.List(context.Background(), inbox.StateQuarantined, 0, 10)
		if err != nil || len(kept) != 1 {
			t.Errorf("%s: %d bodies are in quarantine, %v", name, len(kept), err)
			continue
		}
		if !bytes.HasSuffix(kept[0].Payload, b) {
			t.Errorf("%s: in quarantine is another body", name)
		}
		if st := d.Box.Stats(); st.Accepted != 0 {
			t.Errorf("%s: %d events were accepted", name, st.Accepted)
		}
		if text := kept[0].LastError; text == "" || len(text) > 1100 || strings.Contains(text, "secret") || strings.Contains(d.log.String(), "secret") {
			t.Errorf("%s: the reason is missing, long or quotes the body: %q", name, text)
		}
	}
}

func testRefused(t *testing.T, s inbox.Source, signature string, body []byte, sign func([]byte) http.Header) {
	flip := func(b []byte) []byte {
		b = bytes.Clone(b)
		b[len(b)-2] ^= 1
		return b
	}
	for name, tt := range map[string]struct {
		change func(*http.Request)
		status int
		reason inbox.Reason
	}{
		"no signature":        {func(r *http.Request) { r.Header.Del(signature) }, 401, inbox.NoSignature},
		"signed twice":        {func(r *http.Request) { r.Header.Add(signature, r.Header.Get(signature)) }, 401, inbox.BadSignature},
		"no sense":            {func(r *http.Request) { r.Header.Set(signature, "secret") }, 401, inbox.BadSignature},
		"another body":        {func(r *http.Request) { r.Body = io.NopCloser(bytes.NewReader(flip(body))) }, 401, inbox.WrongSignature},
		"a shorter body":      {func(r *http.Request) { r.Body = io.NopCloser(bytes.NewReader(body[:len(body)-1])) }, 401, inbox.WrongSignature},
		"no body":             {func(r *http.Request) { r.Body = http.NoBody }, 401, inbox.WrongSignature},
		"broken off":          {func(r *http.Request) { r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), broken{})) }, 400, inbox.BadBody},
		"one byte too long":   {func(r *http.Request) { r.Body = io.NopCloser(io.LimitReader(spaces{}, bodyLimit+1)) }, 413, inbox.TooLarge},
		"endless":             {func(r *http.Request) { r.Body = io.NopCloser(spaces{}) }, 413, inbox.TooLarge},
		"compressed":          {func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, 415, inbox.BadType},
		"another type":        {func(r *http.Request) { r.Header.Set("Content-Type", "text/html") }, 415, inbox.BadType},
		"two types":           {func(r *http.Request) { r.Header.Add("Content-Type", "application/json") }, 415, inbox.BadType},
		"another method":      {func(r *http.Request) { r.Method = http.MethodPut }, 405, inbox.BadMethod},
		"a method of no kind": {func(r *http.Request) { r.Method = "SECRET" }, 405, inbox.BadMethod},
	} {
		d := NewDoor(t, s, sign)
		if status := d.Post(body, tt.change); status != tt.status {
			t.Errorf("%s: answered %d, want %d", name, status, tt.status)
		}
		st := d.Box.Stats()
		if len(st.Rejected) != 1 || st.Rejected[tt.reason] != 1 {
			t.Errorf("%s: counted %v, want %q once", name, st.Rejected, tt.reason)
		}
		if totals, err := d.Box.Totals(context.Background()); err != nil || totals.Pending+totals.Quarantined != 0 {
			t.Errorf("%s: something is stored: %+v, %v", name, totals, err)
		}
		if strings.Contains(d.log.String(), "secret") {
			t.Errorf("%s: the log quotes the delivery", name)
		}
	}
}

func mustVerify(t *testing.T, s inbox.Source, body []byte, sign func([]byte) http.Header) []byte {
	t.Helper()
	d := &inbox.Delivery{Method: http.MethodPost, Header: sign(body), Body: body, Received: time.Now()}
	verified, err := s.Verify(d)
	if err != nil {
		t.Fatal(err)
	}
	return verified
}

// broken is a connection that breaks.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

// spaces is a body without end.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
