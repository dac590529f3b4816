package dlq

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (h *handler) totals(req *http.Request) (any, error) {
	p, err := paramsOf(req, "after", "n")
	if err != nil {
		return nil, err
	}
	totals, err := h.review.Totals(req.Context(), p.v.Get("after"), p.n)
	type row struct {
		Stream    string `json:"stream"`
		Waiting   int    `json:"waiting"`
		Review    int    `json:"review"`
		Resolved  int    `json:"resolved"`
		Discarded int    `json:"discarded"`
		Rejected  int    `json:"rejected"`
		Oldest    int64  `json:"oldest_seconds"`
	}
	rows := []row{}
	for _, t := range totals {
		rows = append(rows, row{t.Stream, t.Waiting, t.Review, t.Resolved, t.Discarded, t.Rejected, int64(t.Oldest / time.Second)})
	}
	return map[string]any{"totals": rows}, err
}

func (h *handler) letters(req *http.Request) (any, error) {
	p, err := paramsOf(req, "stream", "state", "fingerprint", "key", "id", "job", "from", "until", "after", "n")
	if err != nil {
		return nil, err
	}
	q := Query{
		Stream: p.v.Get("stream"), ID: p.v.Get("id"), Key: p.v.Get("key"), Fingerprint: p.v.Get("fingerprint"), Job: p.v.Get("job"),
		State: p.state("state"), From: p.time("from"), Until: p.time("until"), After: p.number("after"), N: p.n,
	}
	if p.err != nil {
		return nil, p.err
	}
	page, err := h.review.List(req.Context(), q)
	rows := []letterJSON{}
	for i := range page.Letters {
		rows = append(rows, jsonOf(&page.Letters[i]))
	}
	return map[string]any{"letters": rows, "next": page.Next}, err
}

func (h *handler) groups(req *http.Request) (any, error) {
	p, err := paramsOf(req, "stream", "after", "n")
	if err != nil {
		return nil, err
	}
	groups, err := h.review.Groups(req.Context(), p.v.Get("stream"), p.v.Get("after"), p.n)
	type row struct {
		Fingerprint string    `json:"fingerprint"`
		Waiting     int       `json:"waiting"`
		Review      int       `json:"review"`
		First       time.Time `json:"first"`
		Last        time.Time `json:"last"`
	}
	rows := []row{}
	for _, g := range groups {
		rows = append(rows, row{g.Fingerprint, g.Waiting, g.Review, g.First.UTC(), g.Last.UTC()})
	}
	return map[string]any{"groups": rows}, err
}

func (h *handler) audit(req *http.Request) (any, error) {
	p, err := paramsOf(req, "stream", "id", "job", "after", "n")
	if err != nil {
		return nil, err
	}
	q := AuditQuery{Stream: p.v.Get("stream"), ID: p.v.Get("id"), Job: p.v.Get("job"), After: p.number("after"), N: p.n}
	if p.err != nil {
		return nil, p.err
	}
	entries, next, err := h.review.Audit(req.Context(), q)
	type row struct {
		Seq    uint64    `json:"seq"`
		At     time.Time `json:"at"`
		Verb   string    `json:"verb"`
		ID     string    `json:"id,omitempty"`
		Letter uint64    `json:"letter,omitempty"`
		Job    string    `json:"job,omitempty"`
		Actor  string    `json:"actor"`
		Reason string    `json:"reason"`
		Before string    `json:"before,omitempty"`
		After  string    `json:"after,omitempty"`
	}
	rows := []row{}
	for _, e := range entries {
		rows = append(rows, row{e.Seq, e.At.UTC(), e.Verb, e.ID, e.Letter, e.Job, e.Actor, e.Reason, hexOf(e.Before), hexOf(e.After)})
	}
	return map[string]any{"entries": rows, "next": next}, err
}

func (h *handler) jobs(req *http.Request) (any, error) {
	p, err := paramsOf(req, "stream", "after", "n")
	if err != nil {
		return nil, err
	}
	jobs, err := h.review.Jobs(req.Context(), p.v.Get("stream"), p.v.Get("after"), p.n)
	rows := []jobJSON{}
	for i := range jobs {
		rows = append(rows, jsonOfJob(&jobs[i]))
	}
	return map[string]any{"jobs": rows}, err
}

// params are the parameters of a list.
type params struct {
	v   url.Values
	n   int
	err error
}

// paramsOf reads the parameters of a list, which may be those that are named, each once.
func paramsOf(req *http.Request, names ...string) (*params, error) {
	v, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return nil, invalid("the parameters cannot be read")
	}
	for name, values := range v {
		if !slices.Contains(names, name) {
			return nil, invalid("a parameter that there is not here; there are %s", strings.Join(names, ", "))
		}
		if len(values) != 1 {
			return nil, invalid("the parameter %s is given %d times", name, len(values))
		}
	}
	p := &params{v: v, n: 50}
	if p.v.Has("n") {
		p.n = int(min(p.number("n"), maxPage+1))
	}
	return p, p.err
}

func (p *params) number(name string) uint64 {
	if p.v.Get(name) == "" {
		return 0
	}
	n, err := strconv.ParseUint(p.v.Get(name), 10, 64)
	if err != nil {
		p.err = invalid("the parameter %s is not a number", name)
	}
	return n
}

func (p *params) time(name string) time.Time {
	if p.v.Get(name) == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, p.v.Get(name))
	if err != nil {
		p.err = invalid("the parameter %s is not a time as RFC 3339 has it", name)
	}
	return t
}

func (p *params) state(name string) State {
	s, err := stateOf(p.v.Get(name))
	if err != nil {
		p.err = err
	}
	return s
}

func stateOf(name string) (State, error) {
	for s := State(0); s <= StateRejected; s++ {
		if name == s.String() || s == 0 && name == "" {
			return s, nil
		}
	}
	return 0, invalid("a state that there is not")
}
