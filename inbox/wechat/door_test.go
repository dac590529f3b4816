package wechat_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/wechat"
)

// A door is a source behind inbox.Handler, over a box in memory.
type door struct {
	box     *inbox.Box
	handler http.Handler
	log     bytes.Buffer
}

const bodyLimit = 1 << 20

func newDoor(t *testing.T, s *wechat.Source) *door {
	t.Helper()
	d := new(door)
	var err error
	if d.box, err = inbox.New(inbox.NewMemory(), &inbox.Options{Logger: slog.New(slog.NewTextHandler(&d.log, nil))}); err != nil {
		t.Fatal(err)
	}
	if d.handler, err = inbox.Handler(d.box, s, &inbox.HandlerOptions{BodyLimit: bodyLimit}); err != nil {
		t.Fatal(err)
	}
	return d
}

// request is WeChat's with a push, sealed or in plaintext, signed at a time.
func request(t *testing.T, push string, sealed bool, at time.Time) *http.Request {
	t.Helper()
	query, body := wechat.Sign(token, at, nonce), []byte(push)
	if sealed {
		query, body = seal(t, secret, appID, at, push)
	}
	r := httptest.NewRequest(http.MethodPost, "/hook?"+query.Encode(), bytes.NewReader(body))
	r.Header.Set("Content-Type", "text/xml")
	return r
}

func (d *door) serve(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	return w
}

// The whole way, each request twice, as WeChat sends it again.
func TestHandler(t *testing.T) {
	for _, test := range []struct {
		name, contentType, push string
		sealed                  bool
		source                  *wechat.Source
		status                  int
		want                    string
	}{
		{"XML, security mode", "text/xml", pushed, true, source(t), 200, "1 stored, 1 again"},
		{"JSON sent as XML", "text/xml", `{"MsgType":"text","MsgId":18}`, true, source(t), 200, "1 stored, 1 again"},
		{"JSON", "application/json; charset=utf-8", `{"MsgType":"text","MsgId":18}`, true, source(t), 200, "1 stored, 1 again"},
		{"XML sent as JSON", "application/json", pushed, true, source(t), 200, "1 stored, 1 again"},
		{"plaintext, allowed", "text/xml", pushed, false, open(t), 200, "1 stored, 1 again"},
		{"plaintext, not allowed", "text/xml", pushed, false, source(t), 401, "2 rejected"},
		{"not decodable", "text/xml", "<xml><MsgId>1</MsgId>", true, source(t), 200, "2 quarantined"},
		{"another type", "text/plain", pushed, true, source(t), 415, "2 rejected"},
		{"no type", "", pushed, true, source(t), 415, "2 rejected"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDoor(t, test.source)
			for range 2 {
				r := request(t, test.push, test.sealed, time.Now())
				if r.Header.Set("Content-Type", test.contentType); test.contentType == "" {
					r.Header.Del("Content-Type")
				}
				w := d.serve(r)
				if w.Code != test.status || w.Code == 200 && (w.Body.String() != "success" || w.Header().Get("Content-Type") != "text/plain; charset=utf-8") {
					t.Errorf("status %d, %q", w.Code, w.Body)
				}
			}
			if got := counts(d.box.Stats()); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

func counts(s inbox.Stats) string {
	rejected := uint64(0)
	for _, n := range s.Rejected {
		rejected += n
	}
	var parts []string
	for _, c := range []struct {
		n    uint64
		what string
	}{{s.Accepted, "stored"}, {s.Duplicates, "again"}, {s.Quarantined, "quarantined"}, {s.Conflicts, "in conflict"}, {rejected, "rejected"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprint(c.n, " ", c.what))
		}
	}
	return strings.Join(parts, ", ")
}

// What is signed and cannot be decoded lies in quarantine as it came, decrypted, and
// neither the reason nor the log quotes it.
func TestUndecodable(t *testing.T) {
	pushes := map[string]string{
		"empty":           "",
		"text":            "hello",
		"an array":        `["hello"]`,
		"encrypted twice": `<xml><Encrypt>hello</Encrypt></xml>`,
		"NUL":             "<xml><MsgId>hello\x00</MsgId></xml>",
		"not UTF-8":       "<xml><MsgId>hello\xff</MsgId></xml>",
		"another charset": `<?xml version="1.0" encoding="hello"?><xml><MsgId>1</MsgId></xml>`,
		"a document type": `<!DOCTYPE xml [<!ENTITY hello SYSTEM "file:///etc/passwd">]><xml><MsgId>&hello;</MsgId></xml>`,
		"deep XML":        strings.Repeat("<hello>", 50_000),
		"deep JSON":       strings.Repeat(`{"hello":`, 50_000),
		"two IDs":         `{"MsgId":"hello","MsgId":"olleh"}`,
		"an ID of a kind": `{"MsgId":["hello"]}`,
		"nothing known":   `{"hello":"hello"}`,
	}
	for i := 1; i < 8; i++ {
		pushes[fmt.Sprintf("cut at %d of 8", i)] = pushed[:len(pushed)*i/8]
	}
	for name, push := range pushes {
		for _, sealed := range []bool{true, false} {
			if name == "encrypted twice" && !sealed {
				continue // plaintext that says it is encrypted is not authentic
			}
			d := newDoor(t, open(t))
			if w := d.serve(request(t, push, sealed, time.Now())); w.Code != http.StatusOK {
				t.Errorf("%s, sealed %v: answered %d", name, sealed, w.Code)
			}
			kept, err := d.box.List(t.Context(), inbox.StateQuarantined, 0, 10)
			if err != nil || len(kept) != 1 || string(kept[0].Payload) != push {
				t.Errorf("%s, sealed %v: %d bodies are in quarantine, %v", name, sealed, len(kept), err)
				continue
			}
			if text := kept[0].LastError; text == "" || len(text) > 300 || strings.Contains(text, "hello") || strings.Contains(d.log.String(), "hello") {
				t.Errorf("%s: the reason is missing, long or quotes the push: %q", name, text)
			}
		}
	}
}

func TestRejectedRequests(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*http.Request)
		status int
		reason inbox.Reason
	}{
		"no query":          {func(r *http.Request) { r.URL.RawQuery = "" }, 401, inbox.NoSignature},
		"a query cut short": {func(r *http.Request) { r.URL.RawQuery = r.URL.RawQuery[:60] }, 401, inbox.BadSignature},
		"a bad query":       {func(r *http.Request) { r.URL.RawQuery = "msg_signature=%zz;" }, 401, inbox.NoSignature},
		"a type twice":      {func(r *http.Request) { r.Header.Add("Content-Type", "text/xml") }, 415, inbox.BadType},
		"compressed":        {func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, 415, inbox.BadType},
		"PUT":               {func(r *http.Request) { r.Method = http.MethodPut }, 405, inbox.BadMethod},
		"a GET of a push":   {func(r *http.Request) { r.Method = http.MethodGet }, 403, inbox.BadHandshake},
	} {
		d := newDoor(t, source(t))
		r := request(t, pushed, true, time.Now())
		test.change(r)
		w := d.serve(r)
		if st := d.box.Stats(); w.Code != test.status || st.Rejected[test.reason] != 1 || strings.Contains(w.Body.String(), "signature") {
			t.Errorf("%s: answered %d, %q, counted %v", name, w.Code, w.Body, st.Rejected)
		}
	}
	for name, test := range map[string]struct {
		size   int
		age    time.Duration
		status int
		reason inbox.Reason
	}{
		"just over the limit": {bodyLimit, 0, 413, inbox.TooLarge},
		"too old":             {0, wechat.Horizon + time.Minute, 401, inbox.TooOld},
		"in the future":       {0, -6 * time.Minute, 401, inbox.TooEarly},
	} {
		d := newDoor(t, open(t))
		w := d.serve(request(t, pushed+strings.Repeat(" ", test.size), false, time.Now().Add(-test.age)))
		if st := d.box.Stats(); w.Code != test.status || st.Rejected[test.reason] != 1 {
			t.Errorf("%s: answered %d, counted %v", name, w.Code, st.Rejected)
		}
	}
}

func TestHandshakeBehindTheHandler(t *testing.T) {
	d := newDoor(t, source(t))
	q := with(wechat.Sign(token, time.Now(), nonce), "echostr", "4375120948345356249")
	if w := d.serve(httptest.NewRequest(http.MethodGet, "/hook?"+q.Encode(), nil)); w.Code != http.StatusOK || w.Body.String() != "4375120948345356249" {
		t.Errorf("answered %d, %q", w.Code, w.Body)
	}
	q = with(q, "nonce", "1")
	if w := d.serve(httptest.NewRequest(http.MethodGet, "/hook?"+q.Encode(), nil)); w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "437") {
		t.Errorf("answered %d, %q", w.Code, w.Body)
	}
}
