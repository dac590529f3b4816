package inbox_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/inboxtest"
)

func TestHandlerStoresWhatItAcknowledges(t *testing.T) {
	b := newBox(t, inbox.NewMemory(), nil)
	h := newHandler(t, b, provider{}, nil)
	if w := post(h, `[{"id":"1","key":"k"},{"id":"2","key":"k"},{"id":"1","key":"k"}]`); w.Code != 200 || w.Body.Len() > 0 {
		t.Fatalf("a delivery was answered %d %q", w.Code, w.Body)
	}
	if w := post(h, `[{"id":"2","key":"k"},{"id":"3","key":"k"},{"id":"1","key":"k","more":1}]`); w.Code != 200 {
		t.Fatalf("a delivery with duplicates and a conflict was answered %d", w.Code)
	}
	wantTotals(t, b, inbox.Totals{Pending: 3, Conflicts: 1})
	s := b.Stats()
	if s.Accepted != 3 || s.Duplicates != 2 || s.Conflicts != 1 || s.Quarantined != 0 {
		t.Errorf("the counts are %+v", s)
	}
	rs, err := b.Get(context.Background(), "test/1")
	if err != nil || len(rs) != 2 || string(rs[0].Payload) != `{"id":"1","key":"k"}` || rs[1].State != inbox.StateConflict {
		t.Errorf("the event in conflict has the records %+v, %v", rs, err)
	}
}

func TestHandlerAnswers(t *testing.T) {
	const good = `[{"id":"1"}]`
	for _, tt := range []struct {
		name   string
		source inbox.Source
		method string
		target string
		body   string
		header []string
		code   int
		reason inbox.Reason
		want   string
	}{
		{name: "handshake", method: "GET", target: "/?token=token&challenge=12345", code: 200, want: "12345"},
		{name: "handshake with the wrong token", method: "GET", target: "/?token=other&challenge=1", code: 403, reason: inbox.BadHandshake},
		{name: "GET without a handshake", source: withoutHandshake{}, method: "GET", code: 405, reason: inbox.BadMethod},
		{name: "PUT", method: "PUT", body: good, code: 405, reason: inbox.BadMethod},
		{name: "HEAD", method: "HEAD", code: 405, reason: inbox.BadMethod},
		{name: "good", body: good, code: 200},
		{name: "with a charset", body: good, header: []string{"Content-Type", "Application/JSON; charset=utf-8"}, code: 200},
		{name: "identity", body: good, header: []string{"Content-Encoding", "identity"}, code: 200},
		{name: "no content type", body: good, header: []string{"Content-Type", ""}, code: 415, reason: inbox.BadType},
		{name: "another content type", body: good, header: []string{"Content-Type", "text/plain"}, code: 415, reason: inbox.BadType},
		{name: "no media type", body: good, header: []string{"Content-Type", ";;;"}, code: 415, reason: inbox.BadType},
		{name: "gzip", body: good, header: []string{"Content-Encoding", "gzip"}, code: 415, reason: inbox.BadType},
		{name: "its own types", source: withoutHandshake{}, body: good, header: []string{"Content-Type", "text/xml"}, code: 200, want: "success"},
		{name: "JSON where XML is wanted", source: withoutHandshake{}, body: good, code: 415, reason: inbox.BadType},
		{name: "no signature", body: good, header: []string{"X-Signature", ""}, code: 401, reason: inbox.NoSignature},
		{name: "wrong signature", body: good, header: []string{"X-Signature", "forged"}, code: 401, reason: inbox.WrongSignature},
		{name: "old signature", body: good, header: []string{"X-Signature", "old"}, code: 401, reason: inbox.TooOld},
		{name: "a source that errs", body: good, header: []string{"X-Signature", "odd"}, code: 401, reason: inbox.BadSignature},
		{name: "over the limit", body: "[" + strings.Repeat(" ", 1000) + "]", code: 413, reason: inbox.TooLarge},
		{name: "over the limit and forged", body: strings.Repeat(" ", 1001), header: []string{"X-Signature", "forged"}, code: 413, reason: inbox.TooLarge},
		{name: "at the limit", body: "[" + strings.Repeat(" ", 998) + "]", code: 200},
		{name: "not JSON", body: "[{", code: 200},
		{name: "empty", body: "", code: 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBox(t, inbox.NewMemory(), nil)
			var hooked inbox.Reason
			b2 := newBox(t, inbox.NewMemory(), &inbox.Options{Hooks: &inbox.Hooks{
				Rejected: func(_ context.Context, provider string, r inbox.Reason) { hooked = r },
			}})
			if tt.source == nil {
				tt.source = provider{}
			}
			if tt.method == "" {
				tt.method = "POST"
			}
			if tt.target == "" {
				tt.target = "/"
			}
			for _, b := range []*inbox.Box{b, b2} {
				h := newHandler(t, b, tt.source, &inbox.HandlerOptions{BodyLimit: 1000})
				r := httptest.NewRequest(tt.method, tt.target, strings.NewReader(tt.body))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("X-Signature", "signed")
				for i := 0; i < len(tt.header); i += 2 {
					r.Header.Set(tt.header[i], tt.header[i+1])
					if tt.header[i+1] == "" {
						r.Header.Del(tt.header[i])
					}
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != tt.code || tt.code == 200 && w.Body.String() != tt.want {
					t.Fatalf("answered %d %q, want %d %q", w.Code, w.Body, tt.code, tt.want)
				}
				if strings.Contains(w.Body.String(), "signature") {
					t.Errorf("the answer gives the reason: %q", w.Body)
				}
				if tt.code == 405 && w.Header().Get("Allow") == "" {
					t.Error("the answer does not say which methods are allowed")
				}
				s := b.Stats()
				if tt.reason == "" {
					if len(s.Rejected) != 0 {
						t.Errorf("rejections were counted: %v", s.Rejected)
					}
				} else if s.Rejected[tt.reason] != 1 || len(s.Rejected) != 1 {
					t.Errorf("counted were %v, want %q once", s.Rejected, tt.reason)
				}
				if got := totals(t, b); tt.code != 200 && got != (inbox.Totals{}) {
					t.Errorf("a rejected delivery is stored: %+v", got)
				}
			}
			if hooked != tt.reason {
				t.Errorf("the hook was told %q, want %q", hooked, tt.reason)
			}
		})
	}
}

func TestHandlerRefusesRepeatedHeaders(t *testing.T) {
	b := newBox(t, inbox.NewMemory(), nil)
	h := newHandler(t, b, provider{}, nil)
	for name, code := range map[string]int{"Content-Type": 415, "Content-Encoding": 415, "X-Signature": 401} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(`[{"id":"1"}]`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Signature", "signed")
		r.Header.Add(name, r.Header.Get(name))
		if name == "Content-Encoding" {
			r.Header[name] = []string{"identity", "br"}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != code {
			t.Errorf("a delivery with %s twice was answered %d, want %d", name, w.Code, code)
		}
	}
	wantTotals(t, b, inbox.Totals{})
}

func TestHandlerQuarantines(t *testing.T) {
	for name, tt := range map[string]struct {
		body    string
		pending int
	}{
		"not JSON":             {`[{"id":"1"},`, 0},
		"empty":                {``, 0},
		"no events":            {`[]`, 0},
		"one bad element":      {`[{"id":"1"},{"id":2},{"id":"3"}]`, 2},
		"an invalid ID":        {`[{"id":"1"},{"id":"` + strings.Repeat("x", 600) + `"},{"id":"3"}]`, 2},
		"NUL in an ID":         {`[{"id":"1"},{"id":"\u0000"}]`, 1},
		"another's event":      {`[{"id":"1"},{"id":"2","provider":"other"}]`, 1},
		"a decoder that fails": {`["panic"]`, 0},
		"bytes":                {"\xff\xfe\x00", 0},
	} {
		t.Run(name, func(t *testing.T) {
			log, text := logged()
			b := newBox(t, inbox.NewMemory(), &inbox.Options{Logger: log})
			h := newHandler(t, b, provider{}, nil)
			for range 2 { // the second is stored already
				if w := post(h, tt.body); w.Code != 200 {
					t.Fatalf("answered %d, want 200", w.Code)
				}
			}
			wantTotals(t, b, inbox.Totals{Pending: tt.pending, Quarantined: 1})
			rs, err := b.List(context.Background(), inbox.StateQuarantined, 0, 10)
			if err != nil || len(rs) != 1 {
				t.Fatalf("in quarantine are %d records, %v", len(rs), err)
			}
			if r := rs[0]; string(r.Payload) != tt.body || r.LastError == "" || r.Type != "raw" || !strings.HasPrefix(r.ID, "test/raw/") {
				t.Errorf("in quarantine is %+v, want the body and a reason", r)
			}
			if s := b.Stats(); s.Quarantined != 2 || s.Accepted != uint64(tt.pending) {
				t.Errorf("the counts are %+v", s)
			}
			if strings.Contains(text(), "xxxx") || strings.Contains(text(), `"id"`) {
				t.Errorf("the log has parts of the body: %s", text())
			}
		})
	}
}

// Nothing is acknowledged that is not stored, wherever the store fails.
func TestHandlerWhenTheStoreFails(t *testing.T) {
	const body = `[{"id":"1","key":"a"},{"id":"2","key":"b"}]`
	for name, tt := range map[string]struct {
		before, after error
		stored        bool
	}{
		"before":                {before: inboxtest.ErrFault},
		"after":                 {after: inboxtest.ErrFault, stored: true},
		"full":                  {before: inbox.ErrFull},
		"invalid":               {before: inbox.ErrInvalid},
		"its context has ended": {before: context.Canceled},
		"the answer is late":    {after: context.DeadlineExceeded, stored: true},
	} {
		t.Run(name, func(t *testing.T) {
			store := &inboxtest.Faulty{Store: inbox.NewMemory()}
			fails := true
			store.Before = func(s inboxtest.Step) error {
				if fails && s.Arrivals != nil {
					return tt.before
				}
				return nil
			}
			store.After = func(s inboxtest.Step) error {
				if fails && s.Arrivals != nil {
					return tt.after
				}
				return nil
			}
			b := newBox(t, store, nil)
			h := newHandler(t, b, provider{}, &inbox.HandlerOptions{RetryAfter: 1500 * time.Millisecond})
			w := post(h, body)
			if w.Code != 503 || w.Header().Get("Retry-After") != "2" {
				t.Errorf("answered %d, Retry-After %q, want 503 and 2", w.Code, w.Header().Get("Retry-After"))
			}
			if got := totals(t, b).Pending; (got == 2) != tt.stored || !tt.stored && got != 0 {
				t.Errorf("%d events are stored; want them: %t", got, tt.stored)
			}
			if s := b.Stats(); s.Refused != 1 || s.Errors != 1 {
				t.Errorf("the counts are %+v, want one refusal", s)
			}
			fails = false
			for range 2 { // the provider sends it again
				if w := post(h, body); w.Code != 200 {
					t.Errorf("answered %d when the store was well again", w.Code)
				}
			}
			wantTotals(t, b, inbox.Totals{Pending: 2})
		})
	}
}

func TestHandlerDoesNotWaitForAStoreForEver(t *testing.T) {
	release := make(chan struct{})
	store := &inboxtest.Faulty{Store: inbox.NewMemory(), Before: func(s inboxtest.Step) error {
		if s.Arrivals != nil {
			<-release
		}
		return nil
	}}
	b := newBox(t, store, &inbox.Options{StoreTimeout: 20 * time.Millisecond})
	h := newHandler(t, b, provider{}, nil)
	if w := post(h, `[{"id":"1"}]`); w.Code != 503 {
		t.Errorf("answered %d, want 503", w.Code)
	}
	close(release)
	if w := post(h, `[{"id":"1"}]`); w.Code != 200 {
		t.Errorf("answered %d when the store was well again", w.Code)
	}
	wantTotals(t, b, inbox.Totals{Pending: 1})
}

func TestHandlerOfALargeBody(t *testing.T) {
	b := newBox(t, inbox.NewMemory(), nil)
	h := newHandler(t, b, provider{}, nil)
	var body strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&body, `%c{"id":"%d","key":"k%d","text":"%s"}`, "[,"[min(i, 1)], i, i%50, strings.Repeat("x", 2000))
	}
	body.WriteByte(']')
	if w := post(h, body.String()); w.Code != 200 {
		t.Fatalf("a body of %d bytes was answered %d", body.Len(), w.Code)
	}
	wantTotals(t, b, inbox.Totals{Pending: 1000})
}

// serve runs a handler on a real connection.
func serve(t *testing.T, opts *inbox.HandlerOptions) (*inbox.Box, *httptest.Server) {
	t.Helper()
	b := newBox(t, inbox.NewMemory(), nil)
	s := httptest.NewServer(newHandler(t, b, provider{}, opts))
	t.Cleanup(s.Close)
	return b, s
}

const head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-Signature: signed\r\n"

// exchange writes a request byte by byte as it is and returns the answer.
func exchange(t *testing.T, s *httptest.Server, request string) (*http.Response, error) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	return http.ReadResponse(bufio.NewReader(conn), nil)
}

func TestHandlerOfASlowBody(t *testing.T) {
	b, s := serve(t, &inbox.HandlerOptions{BodyTimeout: 50 * time.Millisecond})
	res, err := exchange(t, s, head+"Content-Length: 1000\r\n\r\n[{")
	if err != nil || res.StatusCode != http.StatusRequestTimeout {
		t.Fatalf("a body that does not come was answered %v, %v", res, err)
	}
	if got := b.Stats().Rejected[inbox.TooSlow]; got != 1 {
		t.Errorf("%d deliveries were counted as too slow", got)
	}
}

// The bound is for the body alone: a store may take longer, and the connection
// serves the next delivery.
func TestHandlerBoundsTheBodyAlone(t *testing.T) {
	const bound = 50 * time.Millisecond
	store := &inboxtest.Faulty{Store: inbox.NewMemory(), Before: func(inboxtest.Step) error {
		time.Sleep(3 * bound) // the clock of a real connection is real
		return nil
	}}
	b := newBox(t, store, nil)
	s := httptest.NewServer(newHandler(t, b, provider{}, &inbox.HandlerOptions{BodyTimeout: bound}))
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	r := bufio.NewReader(conn)
	for i := range 3 {
		fmt.Fprintf(conn, "%sContent-Length: 12\r\n\r\n[{\"id\":\"%d\"}]", head, i)
		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("delivery %d on one connection was answered %v, %v", i, res, err)
		}
	}
}

func TestHandlerOfABodyThatNeverEnds(t *testing.T) {
	b, s := serve(t, &inbox.HandlerOptions{BodyLimit: 1000})
	chunk := "64\r\n" + strings.Repeat("x", 100) + "\r\n"
	res, err := exchange(t, s, head+"Transfer-Encoding: chunked\r\n\r\n"+strings.Repeat(chunk, 20))
	if err != nil || res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Fatalf("a body that does not end was answered %v, %v", res, err)
	}
	if got := b.Stats().Rejected[inbox.TooLarge]; got != 1 {
		t.Errorf("%d deliveries were counted as too large", got)
	}
}

func TestHandlerOfABodyThatBreaksOff(t *testing.T) {
	b, s := serve(t, nil)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, head+"Content-Length: 12\r\n\r\n[{\"id\"")
	conn.Close()
	for start := time.Now(); b.Stats().Rejected[inbox.BadBody] == 0; {
		if time.Since(start) > 10*time.Second {
			t.Fatalf("counted were %v, want a body that could not be read", b.Stats().Rejected)
		}
		time.Sleep(time.Millisecond)
	}
	wantTotals(t, b, inbox.Totals{})
}

func TestHandlerIsRefused(t *testing.T) {
	day := 24 * time.Hour
	b := newBox(t, inbox.NewMemory(), &inbox.Options{Retention: 7 * day})
	for name, f := range map[string]func() (http.Handler, error){
		"nil box":             func() (http.Handler, error) { return inbox.Handler(nil, provider{}, nil) },
		"nil source":          func() (http.Handler, error) { return inbox.Handler(b, nil, nil) },
		"nil pointer":         func() (http.Handler, error) { return inbox.Handler(b, (*provider)(nil), nil) },
		"horizon = retention": func() (http.Handler, error) { return inbox.Handler(b, provider{horizon: 7 * day}, nil) },
		"horizon > retention": func() (http.Handler, error) { return inbox.Handler(b, provider{horizon: 8 * day}, nil) },
		"negative limit": func() (http.Handler, error) {
			return inbox.Handler(b, provider{}, &inbox.HandlerOptions{BodyLimit: -1})
		},
		"huge limit": func() (http.Handler, error) {
			return inbox.Handler(b, provider{}, &inbox.HandlerOptions{BodyLimit: 1 << 40})
		},
		"negative timeout": func() (http.Handler, error) {
			return inbox.Handler(b, provider{}, &inbox.HandlerOptions{BodyTimeout: -1})
		},
		"negative retry-after": func() (http.Handler, error) {
			return inbox.Handler(b, provider{}, &inbox.HandlerOptions{RetryAfter: -1})
		},
	} {
		if h, err := f(); !errors.Is(err, inbox.ErrInvalid) || h != nil {
			t.Errorf("%s: got %v and %v, want ErrInvalid", name, h, err)
		}
	}
	if _, err := inbox.Handler(b, provider{horizon: 7*day - 1}, nil); err != nil {
		t.Errorf("a horizon below the retention is refused: %v", err)
	}
}
