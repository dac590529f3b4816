package dlq

import (
	"errors"
	"net/http"
)

// Handler serves a [Review] as JSON, for a page or a command. There is no page here.
//
//	GET  /totals   ?after=&n=
//	GET  /letters  ?stream=&state=&fingerprint=&key=&id=&job=&from=&until=&after=&n=
//	GET  /groups   ?stream=&after=&n=
//	GET  /audit    ?stream=&id=&job=&after=&n=
//	GET  /jobs     ?stream=&after=&n=
//	POST /reveal /forget                  {"stream","id","seq","reason"}
//	POST /approve /reject /discard /skip  the same, and if you like {"digest"}
//	POST /edit                            the same with {"digest","payload","headers"}
//	POST /redrive  {"stream","job","letters","fingerprint","key","from","until","canary","ramp","max_failures","reason"}
//	POST /pause /resume /cancel           {"stream","job","reason"}
//
// Lists need the stream, but for /totals; n is 50 unless it is given, and 1,000 at most.
// To page, give the "next" of the last answer as after, until it is 0; where there is
// none, the last name (stream, fingerprint, job), until fewer than n come. States are
// waiting, review, resolved, discarded and rejected. Payloads are base64, digests
// hexadecimal, times RFC 3339. A digest has the change refused if the content is no
// longer the one that was seen. An edit replaces payload and headers, so both have to
// be there. What is left out of a redrive is as in [Redrive].
//
// Mount it below a path with [http.StripPrefix]. Who the caller is, the Authorize
// function of the review finds in the request's context: put it there in a middleware.
//
// Contents appear in the answer to /reveal alone. Every text is escaped so that it is
// inert in a page or a terminal that shows the JSON: <, >, &, control characters, and
// those that cannot be seen or change the direction of text. Requests that change
// something must have the content type application/json, which no form of another site
// can send; do not let other origins through with CORS. A parameter or a field that
// there is not is refused, so that no filter is dropped because it was misspelt.
//
// An error is {"error": code, "detail": text}, and no text of the store is in it:
// 400 invalid, 403 unauthorized, 404 not_found and no_path, 405 method, 409 state and
// changed, 503 unavailable.
func Handler(r *Review) (http.Handler, error) {
	if r == nil {
		return nil, invalid("nil review")
	}
	h := &handler{review: r}
	h.routes = map[string]route{
		"/totals": {http.MethodGet, h.totals}, "/letters": {http.MethodGet, h.letters}, "/groups": {http.MethodGet, h.groups},
		"/audit": {http.MethodGet, h.audit}, "/jobs": {http.MethodGet, h.jobs}, "/redrive": {http.MethodPost, h.redrive},
	}
	for _, verb := range []Verb{VerbReveal, VerbEdit, VerbApprove, VerbReject, VerbDiscard, VerbSkip, VerbForget} {
		h.routes["/"+string(verb)] = route{http.MethodPost, func(req *http.Request) (any, error) { return h.letter(req, verb) }}
	}
	for _, verb := range []Verb{VerbPause, VerbResume, VerbCancel} {
		h.routes["/"+string(verb)] = route{http.MethodPost, func(req *http.Request) (any, error) { return h.steer(req, verb) }}
	}
	return h, nil
}

type handler struct {
	review *Review
	routes map[string]route // by path
}

type route struct {
	method string
	do     func(*http.Request) (any, error)
}

// ServeHTTP answers with what the function of a route returns.
func (h *handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	route, known := h.routes[req.URL.Path]
	var answer any
	status, err := http.StatusOK, error(nil)
	switch {
	case !known:
		status, answer = http.StatusNotFound, failure{"no_path", "there is no such path"}
	case req.Method != route.method && !(req.Method == http.MethodHead && route.method == http.MethodGet):
		w.Header().Set("Allow", route.method)
		status, answer = http.StatusMethodNotAllowed, failure{"method", "the method of this path is " + route.method}
	default:
		req.Body = http.MaxBytesReader(w, req.Body, int64(h.review.queue.opts.MaxPayload)*2+256<<10)
		if answer, err = route.do(req); err != nil {
			status, answer = failed(err)
		}
	}
	body, err := inert(answer)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":"internal","detail":"what is stored cannot be shown"}`)
	}
	head := w.Header()
	head.Set("Content-Type", "application/json")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Cache-Control", "no-store")
	head.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	w.WriteHeader(status)
	w.Write(body)
}

type failure struct {
	Error  string `json:"error"`
	Detail string `json:"detail"`
}

// failed is the answer to an error.
func failed(err error) (int, any) {
	switch {
	case errors.Is(err, ErrUnauthorized):
		return http.StatusForbidden, failure{"unauthorized", "this is not yours to do; nothing was done"}
	case errors.Is(err, ErrNotFound):
		return http.StatusNotFound, failure{"not_found", "there is no such letter or job"}
	case errors.Is(err, ErrState):
		return http.StatusConflict, failure{"state", "its state does not allow it; nothing was changed"}
	case errors.Is(err, ErrChanged):
		return http.StatusConflict, failure{"changed", "it was changed meanwhile, or is another; nothing was changed, look again"}
	case errors.Is(err, ErrInvalid):
		return http.StatusBadRequest, failure{"invalid", err.Error()}
	}
	return http.StatusServiceUnavailable, failure{"unavailable", "the store gave no answer; it may have been done, look again"}
}
