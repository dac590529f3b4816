package inbox_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
)

// Over HTTP/2 one connection carries many deliveries, and the limits of one must
// not end the others.
func TestHandlerOverHTTP2(t *testing.T) {
	const limit = 1000
	b := newBox(t, inbox.NewMemory(), nil)
	server := httptest.NewUnstartedServer(newHandler(t, b, provider{}, &inbox.HandlerOptions{
		BodyLimit: limit, BodyTimeout: 200 * time.Millisecond,
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()

	send := func(body io.Reader, header http.Header) int {
		t.Helper()
		r, err := http.NewRequest("POST", server.URL, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "X-Signature": {"signed"}}
		maps.Copy(r.Header, header)
		answer, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.ProtoMajor != 2 {
			t.Fatalf("the answer came over %s", answer.Proto)
		}
		return answer.StatusCode
	}
	sized := func(n int) string {
		const begin, end = `[{"id":"x","text":"`, `"}]`
		return begin + strings.Repeat("a", n-len(begin)-len(end)) + end
	}
	unsized := func(s string) io.Reader { return io.MultiReader(strings.NewReader(s)) }
	stuck, end := io.Pipe()
	defer end.Close()

	for _, c := range []struct {
		name   string
		body   io.Reader
		header http.Header
		want   int
	}{
		{"at the limit", strings.NewReader(sized(limit)), nil, http.StatusOK},
		{"at the limit, without its size", unsized(sized(limit)), nil, http.StatusOK},
		{"over the limit", strings.NewReader(sized(limit + 1)), nil, http.StatusRequestEntityTooLarge},
		{"over the limit, without its size", unsized(sized(limit + 1)), nil, http.StatusRequestEntityTooLarge},
		{"that never comes", stuck, nil, http.StatusRequestTimeout},
		{"encoded", strings.NewReader("x"), http.Header{"Content-Encoding": {"gzip"}}, http.StatusUnsupportedMediaType},
		{"of two types", strings.NewReader("[]"), http.Header{"Content-Type": {"application/json", "application/json"}}, http.StatusUnsupportedMediaType},
		{"after all of these", strings.NewReader(`[{"id":"y"}]`), nil, http.StatusOK},
	} {
		if got := send(c.body, c.header); got != c.want {
			t.Errorf("a body %s is answered %d, want %d", c.name, got, c.want)
		}
	}
	wantTotals(t, b, inbox.Totals{Pending: 2})
}
