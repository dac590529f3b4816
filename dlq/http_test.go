package dlq_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/dlq/dlqtest"
)

type who struct{}

// site is the handler of a review whose actor is in the request's context.
func site(t testing.TB, q *dlq.Queue) http.Handler {
	t.Helper()
	h, err := dlq.Handler(authorized(t, q, func(ctx context.Context, a dlq.Action) (string, error) {
		name, _ := ctx.Value(who{}).(string)
		if name == "reader" && a.Verb != dlq.VerbList {
			return "", errors.New("readers only read")
		}
		return name, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// call calls the handler as somebody, and returns the status and the answer.
func call(t testing.TB, h http.Handler, name, method, path, body string) (int, map[string]any, string) {
	t.Helper()
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req.WithContext(context.WithValue(ctx, who{}, name)))
	var answer map[string]any
	if w.Header().Get("Content-Type") == "application/json" {
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%s %s answered %q: %v", method, path, w.Body, err)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s answered with the headers %v", method, path, w.Header())
		}
	}
	return w.Code, answer, w.Body.String()
}

func TestHandler(t *testing.T) {
	q := newQueue(t, dlq.NewMemory(), nil)
	h := site(t, q)
	put(t, q, "k", "a", "b", "c", "d", "e")
	ref := func(id, more string) string {
		l := get(t, q, id)
		return fmt.Sprintf(`{"stream":"orders","id":%q,"seq":%d,"reason":"why"%s}`, id, l.Seq, more)
	}
	print := get(t, q, "a").Fingerprint
	payload := base64.StdEncoding.EncodeToString([]byte("better"))
	digest := fmt.Sprintf("%x", get(t, q, "a").Digest)
	for _, tc := range []struct {
		method, path, body string
		status             int
		has                string
	}{
		{"GET", "/totals", "", 200, `"waiting":5`},
		{"GET", "/letters?stream=orders&n=2", "", 200, `"next":2`},
		{"GET", "/letters?stream=orders&state=review", "", 200, `{"letters":[],"next":0}`},
		{"GET", "/letters?stream=orders&fingerprint=" + print + "&key=k&id=c", "", 200, `"id":"c"`},
		{"GET", "/letters?stream=orders&from=2000-01-01T00:00:00Z&until=2000-01-02T00:00:00Z", "", 200, `"letters":[]`},
		{"GET", "/groups?stream=orders", "", 200, `"fingerprint":"` + print + `","waiting":5`},
		{"POST", "/reveal", ref("a", ""), 200, base64.StdEncoding.EncodeToString([]byte("payload of a"))},
		{"POST", "/edit", ref("a", `,"digest":"`+digest+`","payload":"`+payload+`","headers":{"x":"y"}`), 200, "edit"},
		{"POST", "/edit", ref("a", `,"digest":"`+digest+`","payload":"`+payload+`","headers":{}`), 409, "changed"},
		{"POST", "/approve", ref("a", `,"digest":"`+digest+`"`), 409, "changed"},
		{"POST", "/discard", ref("a", `,"digest":"`+digest+`"`), 409, "changed"},
		{"POST", "/edit", ref("a", `,"digest":"zz"`), 400, "digest"},
		{"POST", "/reveal", ref("a", ""), 200, `"original":{"payload":"` + base64.StdEncoding.EncodeToString([]byte("payload of a"))},
		{"POST", "/approve", ref("a", ""), 200, "approve"},
		{"POST", "/reject", ref("b", ""), 200, "reject"},
		{"POST", "/discard", ref("c", ""), 200, "discard"},
		{"POST", "/discard", ref("c", ""), 409, "state"},
		{"POST", "/skip", ref("d", ""), 200, "skip"},
		{"POST", "/forget", ref("e", ""), 200, "forget"},
		{"POST", "/forget", `{"stream":"orders","id":"e","seq":99,"reason":"x"}`, 404, "not_found"},
		{"POST", "/redrive", `{"stream":"orders","job":"j","reason":"fixed"}`, 200, `"started":true`},
		{"POST", "/redrive", `{"stream":"orders","job":"j","reason":"fixed"}`, 200, `"started":false`},
		{"POST", "/redrive", `{"stream":"orders","job":"j","reason":"fixed","canary":3}`, 409, "changed"},
		{"POST", "/redrive", `{"stream":"orders","job":"j2","reason":"fixed","letters":"resolved"}`, 400, "invalid"},
		{"POST", "/pause", `{"stream":"orders","job":"j","reason":"x"}`, 200, `"state":"paused"`},
		{"POST", "/resume", `{"stream":"orders","job":"j","reason":"x"}`, 200, `"state":"running"`},
		{"POST", "/cancel", `{"stream":"orders","job":"j","reason":"x"}`, 200, `"state":"cancelled"`},
		{"GET", "/jobs?stream=orders", "", 200, `"job":"j"`},
		{"GET", "/audit?stream=orders&id=b", "", 200, `"verb":"reject"`},
		{"GET", "/audit?stream=orders&job=j", "", 200, `"verb":"cancel"`},

		{"GET", "/letters?stream=orders&n=0", "", 400, "page"}, {"GET", "/letters?stream=orders&n=1001", "", 400, "page"},
		{"GET", "/letters?stream=orders&n=x", "", 400, "number"}, {"GET", "/letters?stream=orders&after=-1", "", 400, "number"},
		{"GET", "/letters?stream=orders&state=x", "", 400, "state"}, {"GET", "/letters?stream=orders&from=x", "", 400, "time"},
		{"GET", "/letters", "", 400, "stream"}, {"GET", "/audit?stream=", "", 400, "stream"},
		{"POST", "/discard", `{"stream":"orders"}`, 400, "invalid"}, {"POST", "/discard", `{`, 400, "invalid"},
		{"POST", "/discard", `{"what":1}`, 400, "invalid"}, {"POST", "/discard", ref("a", "") + "{}", 400, "follows"},
		{"POST", "/discard", `{"reason":"` + strings.Repeat("x", 3<<20) + `"}`, 400, "too long"},
		{"GET", "/discard", "", 405, `"method"`}, {"POST", "/letters", "", 405, `"method"`}, {"DELETE", "/letters", "", 405, "GET"},
		{"GET", "/unknown", "", 404, "no_path"}, {"GET", "/letters/", "", 404, "no_path"}, {"GET", "//letters", "", 404, "no_path"},
		{"POST", "/discard", ref("a", "") + "}", 400, "follows"}, {"POST", "/discard", ref("a", "") + "]", 400, "follows"}, {"POST", "/discard", "null", 400, "invalid"},
		{"POST", "/edit", ref("a", `,"digest":"`+digest+`","payload":"eA=="`), 400, "both"},
		{"POST", "/edit", ref("a", `,"digest":"`+digest+`","headers":{}`), 400, "both"},
		{"POST", "/edit", ref("a", `,"digest":"`+digest+`","headers":null,"payload":""`), 400, "both"},
		{"POST", "/approve", ref("a", `,"payload":"eA=="`), 400, "alone"}, {"POST", "/approve", ref("a", `,"digest":"00"`), 400, "digest"},
		{"POST", "/approve", ref("a", `,"digest":"`+digest+digest+`"`), 400, "digest"}, {"POST", "/forget", ref("a", `,"digest":"`+digest+`"`), 400, "digest"},
		{"POST", "/pause", `{"stream":"orders","job":"j","reason":"x","canary":3}`, 400, "invalid"},
		{"GET", "/letters?stream=orders&fingerprnt=00", "", 400, "parameter"}, {"GET", "/letters?stream=orders&id=a&id=b", "", 400, "2 times"},
		{"GET", "/letters?stream=orders;state=review", "", 400, "parameters"}, {"GET", "/letters?stream=orders&id=%zz", "", 400, "parameters"},
		{"GET", "/totals?stream=orders", "", 400, "parameter"}, {"GET", "/totals?after=%00", "", 400, "stream"}, {"GET", "/jobs?stream=orders&after=%ff", "", 400, "job"},
		{"GET", "/audit?stream=orders&job=%00", "", 400, "job"}, {"GET", "/letters?stream=orders&id=%ff", "", 400, "UTF-8"},
	} {
		status, _, body := call(t, h, "ana", tc.method, tc.path, tc.body)
		if status >= 400 && !strings.HasPrefix(body, `{"error":"`) {
			t.Errorf("%s %s answered with an error of another shape: %s", tc.method, tc.path, body)
		}
		if status != tc.status || !strings.Contains(body, tc.has) {
			t.Errorf("%s %s %.100s answered %d %s, want %d with %s", tc.method, tc.path, tc.body, status, body, tc.status, tc.has)
		}
	}
	wantState(t, q, "b", dlq.StateRejected)
	wantState(t, q, "c", dlq.StateDiscarded)
	if l := wantState(t, q, "d", dlq.StateReview); !l.Aside {
		t.Errorf("the letter is %+v", l)
	}
}

// TestHandlerRefuses shows that a reader may list and see no content, and that a form
// of another site does nothing.
func TestHandlerRefuses(t *testing.T) {
	q := newQueue(t, dlq.NewMemory(), nil)
	h := site(t, q)
	put(t, q, "k", "a")
	l := get(t, q, "a")
	body := fmt.Sprintf(`{"stream":"orders","id":"a","seq":%d,"reason":"why"}`, l.Seq)
	bodies := map[string]string{
		"/edit":    strings.TrimSuffix(body, "}") + fmt.Sprintf(`,"digest":"%x","payload":"","headers":{}}`, l.Digest),
		"/redrive": `{"stream":"orders","job":"j2","reason":"why"}`,
	}
	for _, path := range []string{"/reveal", "/approve", "/reject", "/discard", "/skip", "/forget"} {
		bodies[path] = body
	}
	for _, path := range []string{"/pause", "/resume", "/cancel"} {
		bodies[path] = `{"stream":"orders","job":"j","reason":"why"}`
	}
	redrive(t, newReview(t, q), dlq.Redrive{ID: "j"})
	for path, body := range bodies {
		if status, answer, text := call(t, h, "reader", "POST", path, body); status != 403 || answer["error"] != "unauthorized" || strings.Contains(text, "readers only") {
			t.Errorf("%s as a reader answered %d %v", path, status, text)
		}
		if status, _, _ := call(t, h, "", "POST", path, body); status != 403 {
			t.Errorf("%s as nobody answered %d", path, status)
		}
		for _, kind := range []string{"application/x-www-form-urlencoded", "text/plain", "multipart/form-data", ""} {
			req := httptest.NewRequest("POST", path, strings.NewReader(body))
			req.Header.Set("Content-Type", kind)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req.WithContext(context.WithValue(ctx, who{}, "ana")))
			if w.Code != 400 {
				t.Errorf("%s with the content type %q answered %d", path, kind, w.Code)
			}
		}
	}
	for _, path := range []string{"/totals", "/letters?stream=orders", "/groups?stream=orders", "/audit?stream=orders", "/jobs?stream=orders"} {
		if status, _, _ := call(t, h, "", "GET", path, ""); status != 403 {
			t.Errorf("%s as nobody answered %d", path, status)
		}
		if status, _, _ := call(t, h, "reader", "GET", path, ""); status != map[bool]int{true: 403, false: 200}[strings.HasPrefix(path, "/audit")] {
			t.Errorf("%s as a reader answered %d", path, status)
		}
	}
	if jobs, err := newReview(t, q).Jobs(ctx, stream, "", 10); err != nil || len(jobs) != 1 || jobs[0].State != dlq.JobRunning {
		t.Errorf("refused requests changed the jobs: %+v, %v", jobs, err)
	}
	if entries, _, err := newReview(t, q).Audit(ctx, dlq.AuditQuery{Stream: stream, N: 10}); err != nil || len(entries) != 1 {
		t.Errorf("refused requests are in the audit: %+v, %v", entries, err)
	}
	status, _, text := call(t, h, "reader", "GET", "/letters?stream=orders", "")
	if status != 200 || strings.Contains(text, "payload") || strings.Contains(text, "headers") {
		t.Errorf("the list answered %d %s", status, text)
	}
	wantState(t, q, "a", dlq.StateWaiting)
	if _, err := dlq.Handler(nil); !errors.Is(err, dlq.ErrInvalid) {
		t.Errorf("a handler of no review: %v", err)
	}
}

func TestHandlerEscapesHostileText(t *testing.T) {
	hostile := "</script><img src=x onerror=alert(1)>&\u202e\u2066\u200f\u061c\x1b[2J\x7f\u0085\u2028\ufeff\u00ad\u180e\u3164\U000e0041\"'\\"
	q := newQueue(t, dlq.NewMemory(), nil)
	h := site(t, q)
	m := dlq.Message{Stream: stream, ID: hostile, Key: hostile, Payload: []byte(hostile), Headers: map[string]string{hostile: hostile}}
	if _, err := q.Put(ctx, dlq.Dead{Message: m, Cause: errors.New(hostile), Stack: []byte(hostile)}); err != nil {
		t.Fatal(err)
	}
	l := get(t, q, hostile)
	in, err := json.Marshal(map[string]any{"stream": stream, "id": hostile, "seq": l.Seq, "reason": hostile})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][3]string{
		{"POST", "/reveal", string(in)}, {"GET", "/letters?stream=orders", ""}, {"GET", "/audit?stream=orders", ""},
	} {
		status, answer, text := call(t, h, hostile[:20], c[0], c[1], c[2])
		if status != 200 {
			t.Fatalf("%s answered %d %s", c[1], status, text)
		}
		for _, r := range text {
			if r == '<' || r == '>' || r == '&' || r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x2000 && r < 0x2070 || r == 0x61c || r == 0xfeff ||
				r == 0xad || r == 0x180e || r == 0x3164 || r > 0xffff {
				t.Errorf("%s answered with the character %U", c[1], r)
			}
		}
		if again, err := json.Marshal(answer); err != nil || !bytes.Contains(again, []byte(`\u003c/script`)) {
			t.Errorf("%s lost the text: %s, %v", c[1], again, err)
		}
	}
	_, answer, _ := call(t, h, "ana", "GET", "/letters?stream=orders", "")
	if first := answer["letters"].([]any)[0].(map[string]any); first["id"] != hostile {
		t.Errorf("the ID is read as %q", first["id"])
	}
}

func TestHandlerTellsNothingOfTheStore(t *testing.T) {
	secret := errors.New("password=hunter2")
	s := &dlqtest.Faulty{Store: dlq.NewMemory()}
	q := newQueue(t, s, &dlq.Options{StoreTimeout: 1})
	put(t, newQueue(t, s, nil), "k", "a")
	l := get(t, q, "a")
	s.Before = func(dlqtest.Step) error { return secret }
	status, _, text := call(t, site(t, q), "ana", "POST", "/discard", fmt.Sprintf(`{"stream":"orders","id":"a","seq":%d,"reason":"x"}`, l.Seq))
	if status != 503 || strings.Contains(text, "hunter2") {
		t.Errorf("a store that does not answer: %d %s", status, text)
	}
}

// TestHandlerOfSealedLetters shows what is revealed of a letter whose key is missing.
func TestHandlerOfSealedLetters(t *testing.T) {
	m := dlq.NewMemory()
	key := dlq.Key{ID: "k1", Secret: bytes.Repeat([]byte{1}, 32)}
	put(t, newQueue(t, m, &dlq.Options{Keys: []dlq.Key{key}}), "k", "a")
	q := newQueue(t, m, nil)
	l := get(t, q, "a")
	in := fmt.Sprintf(`{"stream":"orders","id":"a","seq":%d,"reason":"why"}`, l.Seq)
	if status, answer, text := call(t, site(t, q), "ana", "POST", "/reveal", in); status != 200 || !strings.Contains(text, `"unopened":true`) ||
		answer["letter"].(map[string]any)["payload"] != nil {
		t.Errorf("a letter without its key: %d %s", status, text)
	}
}

// TestHandlerBehindAPrefix is mounted as the doc says, and knows HEAD.
func TestHandlerBehindAPrefix(t *testing.T) {
	q := newQueue(t, dlq.NewMemory(), nil)
	put(t, q, "k", "a")
	h := http.StripPrefix("/admin/dlq", site(t, q))
	if status, _, text := call(t, h, "ana", "GET", "/admin/dlq/totals", ""); status != 200 || !strings.Contains(text, `"waiting":1`) {
		t.Errorf("behind a prefix: %d %s", status, text)
	}
	if status, _, _ := call(t, h, "ana", "HEAD", "/admin/dlq/letters?stream=orders", ""); status != 200 {
		t.Errorf("HEAD: %d", status)
	}
	if status, _, text := call(t, h, "ana", "GET", "/admin/dlq", ""); status != 404 || !strings.Contains(text, "no_path") {
		t.Errorf("the prefix alone: %d %s", status, text)
	}
}
