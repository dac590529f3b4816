package dlq

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Handler serves a [Review] as JSON, for a page or a command. There is no page here.
//
//	GET  /totals   ?after=&n=
//	GET  /letters  ?stream=&state=&fingerprint=&key=&id=&job=&from=&until=&after=&n=
//	GET  /groups   ?stream=&after=&n=
//	GET  /audit    ?stream=&id=&job=&after=&n=
//	GET  /jobs     ?stream=&after=&n=
//	POST /reveal /approve /reject /discard /skip /forget   {"stream","id","seq","reason"}
//	POST /edit     the same with {"digest","payload","headers"}
//	POST /redrive  {"stream","job","letters","fingerprint","key","from","until","canary","ramp","max_failures","reason"}
//	POST /pause /resume /cancel                            {"stream","job","reason"}
//
// Payloads are base64, digests hexadecimal, times RFC 3339. Mount it below a path with
// [http.StripPrefix]. Who the caller is, the Authorize function of the review finds in
// the request's context: put it there in a middleware.
//
// Contents appear in the answer to /reveal alone. Every text is escaped so that it is
// inert in a page or a terminal that shows the JSON: <, >, &, control characters and
// those that change the direction of text. Requests that change something must have
// the content type application/json, which no form of another site can send. An error
// is {"error": code, "detail": text} with 400, 403, 404, 409 or 503; texts of the store
// are not in it.
func Handler(r *Review) (http.Handler, error) {
	if r == nil {
		return nil, invalid("nil review")
	}
	h := &handler{r}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /totals", h.serve(h.totals))
	mux.HandleFunc("GET /letters", h.serve(h.letters))
	mux.HandleFunc("GET /groups", h.serve(h.groups))
	mux.HandleFunc("GET /audit", h.serve(h.audit))
	mux.HandleFunc("GET /jobs", h.serve(h.jobs))
	for _, verb := range []Verb{VerbReveal, VerbEdit, VerbApprove, VerbReject, VerbDiscard, VerbSkip, VerbForget} {
		mux.HandleFunc("POST /"+string(verb), h.serve(func(req *http.Request) (any, error) { return h.letter(req, verb) }))
	}
	mux.HandleFunc("POST /redrive", h.serve(h.redrive))
	for _, verb := range []Verb{VerbPause, VerbResume, VerbCancel} {
		mux.HandleFunc("POST /"+string(verb), h.serve(func(req *http.Request) (any, error) { return h.steer(req, verb) }))
	}
	return mux, nil
}

type handler struct{ review *Review }

// serve answers with what a function returns.
func (h *handler) serve(do func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		req.Body = http.MaxBytesReader(w, req.Body, int64(h.review.queue.opts.MaxPayload)*2+256<<10)
		answer, err := do(req)
		status := http.StatusOK
		if err != nil {
			status, answer = failed(err)
		}
		body, err := inert(answer)
		if err != nil {
			status, body = http.StatusInternalServerError, []byte(`{"error":"internal"}`)
		}
		head := w.Header()
		head.Set("Content-Type", "application/json")
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("Cache-Control", "no-store")
		head.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		w.WriteHeader(status)
		w.Write(body)
	}
}

// failed is the answer to an error.
func failed(err error) (int, any) {
	type answer struct {
		Error  string `json:"error"`
		Detail string `json:"detail"`
	}
	switch {
	case errors.Is(err, ErrUnauthorized):
		return http.StatusForbidden, answer{"unauthorized", "this is not yours to do; nothing was done"}
	case errors.Is(err, ErrNotFound):
		return http.StatusNotFound, answer{"not_found", "there is no such letter or job"}
	case errors.Is(err, ErrState):
		return http.StatusConflict, answer{"state", "its state does not allow it; nothing was changed"}
	case errors.Is(err, ErrChanged):
		return http.StatusConflict, answer{"changed", "it was changed meanwhile, or is another; nothing was changed, look again"}
	case errors.Is(err, ErrInvalid):
		return http.StatusBadRequest, answer{"invalid", err.Error()}
	}
	return http.StatusServiceUnavailable, answer{"unavailable", "the store gave no answer; it may have been done, look again"}
}

func (h *handler) totals(req *http.Request) (any, error) {
	p, err := paramsOf(req)
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
	p, err := paramsOf(req)
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
	p, err := paramsOf(req)
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
	p, err := paramsOf(req)
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
	p, err := paramsOf(req)
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

// letterRequest is what is asked about one letter.
type letterRequest struct {
	Stream  string            `json:"stream"`
	ID      string            `json:"id"`
	Seq     uint64            `json:"seq"`
	Reason  string            `json:"reason"`
	Digest  string            `json:"digest"`
	Payload []byte            `json:"payload"`
	Headers map[string]string `json:"headers"`
}

func (h *handler) letter(req *http.Request, verb Verb) (any, error) {
	var in letterRequest
	if err := read(req, &in); err != nil {
		return nil, err
	}
	r, ref, ctx := h.review, Ref{in.Stream, in.ID, in.Seq}, req.Context()
	var err error
	switch verb {
	case VerbReveal:
		l, err := r.Reveal(ctx, ref, in.Reason)
		return map[string]any{"letter": revealed(&l)}, err
	case VerbEdit:
		var before [32]byte
		if n, bad := hex.Decode(before[:], []byte(in.Digest[:min(len(in.Digest), 64)])); bad != nil || n != 32 || len(in.Digest) != 64 {
			return nil, invalid("digest of %d bytes, not 64 of [0-9a-f]", len(in.Digest))
		}
		err = r.Edit(ctx, ref, before, Content{in.Payload, in.Headers}, in.Reason)
	case VerbApprove:
		err = r.Approve(ctx, ref, in.Reason)
	case VerbReject:
		err = r.Reject(ctx, ref, in.Reason)
	case VerbDiscard:
		err = r.Discard(ctx, ref, in.Reason)
	case VerbSkip:
		err = r.Skip(ctx, ref, in.Reason)
	case VerbForget:
		err = r.Forget(ctx, ref, in.Reason)
	}
	return map[string]any{"done": string(verb)}, err
}

// jobRequest is what is asked about a job.
type jobRequest struct {
	Stream      string    `json:"stream"`
	Job         string    `json:"job"`
	Reason      string    `json:"reason"`
	Letters     string    `json:"letters"`
	Fingerprint string    `json:"fingerprint"`
	Key         string    `json:"key"`
	From        time.Time `json:"from"`
	Until       time.Time `json:"until"`
	Canary      int       `json:"canary"`
	Ramp        []int     `json:"ramp"`
	MaxFailures int       `json:"max_failures"`
}

func (h *handler) redrive(req *http.Request) (any, error) {
	var in jobRequest
	if err := read(req, &in); err != nil {
		return nil, err
	}
	letters, err := stateOf(in.Letters)
	if err != nil {
		return nil, err
	}
	status, started, err := h.review.Redrive(req.Context(), Redrive{
		Stream: in.Stream, ID: in.Job, Letters: letters, Fingerprint: in.Fingerprint, Key: in.Key, From: in.From, Until: in.Until,
		Canary: in.Canary, Ramp: in.Ramp, MaxFailures: in.MaxFailures, Reason: in.Reason,
	})
	return map[string]any{"job": jsonOfJob(&status), "started": started}, err
}

func (h *handler) steer(req *http.Request, verb Verb) (any, error) {
	var in jobRequest
	if err := read(req, &in); err != nil {
		return nil, err
	}
	do := map[Verb]func() (JobStatus, error){
		VerbPause:  func() (JobStatus, error) { return h.review.Pause(req.Context(), in.Stream, in.Job, in.Reason) },
		VerbResume: func() (JobStatus, error) { return h.review.Resume(req.Context(), in.Stream, in.Job, in.Reason) },
		VerbCancel: func() (JobStatus, error) { return h.review.Cancel(req.Context(), in.Stream, in.Job, in.Reason) },
	}[verb]
	status, err := do()
	return map[string]any{"job": jsonOfJob(&status)}, err
}

// read reads the JSON of a request.
func read(req *http.Request, into any) error {
	if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return invalid("the content type is not application/json")
	}
	d := json.NewDecoder(req.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return invalid("the body is too long, or not the JSON that is asked for")
	}
	if d.More() {
		return invalid("something follows the JSON")
	}
	return nil
}

// params are the parameters of a list.
type params struct {
	v   url.Values
	n   int
	err error
}

func paramsOf(req *http.Request) (*params, error) {
	p := &params{v: req.URL.Query(), n: 50}
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
