package inboxtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/seed"
)

// deliverAll sends deliveries in their order, as many at once as there are callers.
func (s *storm) deliverAll(shots []*shot) {
	for _, one := range shots {
		s.shots = append(append(s.shots, one), one.twins...)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range s.Callers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(shots)); i = next.Add(1) - 1 {
				s.deliver(shots[i])
			}
		})
	}
	wg.Wait()
}

// deliver sends one delivery and its twins.
func (s *storm) deliver(one *shot) {
	time.Sleep(one.delay)
	if s.Callers == 1 {
		s.insist(one)
		for _, twin := range one.twins {
			s.insist(twin)
		}
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, twin := range one.twins {
		wg.Go(func() { s.insist(twin) })
	}
	s.insist(one)
}

// insist sends a delivery again and again while it is answered with 5xx.
func (s *storm) insist(one *shot) {
	for try := 0; ; try++ {
		one.failed = "no answer" // unless the handler returns
		one.status, one.failed = s.send(one)
		if one.status < 500 || try >= s.Redeliver {
			return
		}
		time.Sleep(one.delay)
	}
}

// send sends one request and returns the answer's status, or why there is none.
func (s *storm) send(one *shot) (status int, failed string) {
	r, err := s.request(one)
	if err != nil {
		return 0, "no request could be made"
	}
	if s.Handler == nil {
		answer, err := s.client.Do(r)
		if err != nil {
			return 0, "no answer" // the error has the URL
		}
		defer answer.Body.Close()
		io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20))
		return answer.StatusCode, ""
	}
	defer func() {
		if p := recover(); p != nil {
			status, failed = 0, fmt.Sprintf("a panic with a value of type %T", p)
		}
	}()
	w := httptest.NewRecorder()
	s.Handler.ServeHTTP(w, r)
	return w.Code, ""
}

// request makes the request of a delivery.
func (s *storm) request(one *shot) (*http.Request, error) {
	content := bytes.NewReader(bytes.Clone(one.content))
	var r *http.Request
	if s.Handler != nil {
		r = httptest.NewRequest(http.MethodPost, s.Path, content)
	} else {
		var err error
		if r, err = http.NewRequest(http.MethodPost, s.URL, content); err != nil {
			return nil, err
		}
	}
	contentType := s.Corpus[one.body].ContentType
	if contentType == "" {
		contentType = "application/json"
	}
	r.Header.Set("Content-Type", contentType)
	signature := one.sign(time.Now())
	for name, values := range signature.Header {
		r.Header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	if len(signature.Query) > 0 {
		query := r.URL.Query()
		maps.Copy(query, signature.Query)
		r.URL.RawQuery = query.Encode()
		if s.Handler != nil {
			r.RequestURI = r.URL.RequestURI()
		}
	}
	return r, nil
}

func (s *storm) report() StormReport {
	r := StormReport{Seed: s.Seed, Answers: map[StormKind]map[int]int{}}
	acknowledged := map[int]bool{}
	for _, one := range s.shots {
		if r.Answers[one.kind] == nil {
			r.Answers[one.kind] = map[int]int{}
		}
		r.Answers[one.kind][one.status]++
		if genuine := one.kind != StormForged && one.kind != StormMalformed; genuine && one.acknowledged() {
			acknowledged[one.body] = true
		}
	}
	known := map[string]bool{}
	for i, b := range s.Corpus {
		if !acknowledged[i] {
			continue
		}
		r.Acknowledged = append(r.Acknowledged, b)
		for _, e := range b.Events {
			if !known[e] {
				known[e] = true
				r.Events = append(r.Events, e)
			}
		}
	}
	return r
}

func (o *shot) acknowledged() bool { return o.status >= 200 && o.status < 300 }

// wrong says what is wrong with the answer to a delivery; empty if nothing is.
func (o *shot) wrong() string {
	good := o.kind == StormGood || o.kind == StormDuplicate
	switch {
	case o.status == 0:
		return o.failed
	case o.status >= 500, good && !o.acknowledged(), o.kind == StormForged && o.acknowledged():
		return fmt.Sprintf("answered %d", o.status)
	}
	return ""
}

// judge reports the answers that are wrong.
func (s *storm) judge(t testing.TB) {
	t.Helper()
	want := map[StormKind]string{
		StormGood: "2xx", StormDuplicate: "2xx", StormMalformed: "2xx or 4xx", StormForged: "4xx", StormReplay: "2xx or 4xx",
	}
	f := findings{t: t, seed: s.Seed}
	for _, one := range s.shots {
		if wrong := one.wrong(); wrong != "" {
			f.add(string(one.kind), "a delivery (%s) of %s: %s, want %s", one.kind, s.name(one.body), wrong, want[one.kind])
		}
	}
	f.close()
}

// compare reports the effects that are not those of the events.
func (s *storm) compare(t testing.TB, effects map[string]int, r StormReport) {
	t.Helper()
	must := map[string]bool{}
	for _, e := range r.Events {
		must[e] = true
	}
	f := findings{t: t, seed: s.Seed}
	known := map[string]bool{}
	for i, b := range s.Corpus {
		for j, e := range b.Events {
			if known[e] {
				continue
			}
			known[e] = true
			switch n := effects[e]; {
			case n == 0 && must[e]:
				f.add("lost", "event %d of %d of %s was acknowledged and had no effect", j+1, len(b.Events), s.name(i))
			case n > 1:
				f.add("again", "event %d of %d of %s had its effect %d times", j+1, len(b.Events), s.name(i), n)
			}
		}
	}
	for _, e := range slices.Sorted(maps.Keys(effects)) {
		if !known[e] && effects[e] > 0 {
			f.add("foreign", "an effect (%d times) is of no event of the corpus; the SHA-256 of its name begins with %s", effects[e], short(e))
		}
	}
	f.close()
}

// findings reports the first few of each kind, and how many more there were.
type findings struct {
	t     testing.TB
	seed  uint64
	kinds []string
	times map[string]int
}

const maxFindings = 5

func (f *findings) add(kind, format string, args ...any) {
	f.t.Helper()
	if f.times == nil {
		f.times = map[string]int{}
	}
	if f.times[kind]++; f.times[kind] == 1 {
		f.kinds = append(f.kinds, kind)
	}
	if f.times[kind] <= maxFindings {
		f.t.Errorf("inboxtest: storm %d: %s", f.seed, fmt.Sprintf(format, args...))
	}
}

func (f *findings) close() {
	f.t.Helper()
	if len(f.kinds) > 0 {
		f.t.Logf("inboxtest: storm %d: set Seed, or leave it zero and %s", f.seed, seed.Repeat(f.seed))
	}
	for _, k := range f.kinds {
		if more := f.times[k] - maxFindings; more > 0 {
			f.t.Errorf("inboxtest: storm %d: and %d more of this kind (%s)", f.seed, more, k)
		}
	}
}

// short stands for a name that may be personal data.
func short(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:6])
}
