package backpressure

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// SlowDownHeader is the HTTP header, in seconds, by which a server at level 1 and
// above asks a [Client] to leave so much time between two requests.
const SlowDownHeader = "Pawl-Slow-Down"

// HandlerOptions set up a [Handler]. Each layer that is nil is left out.
type HandlerOptions struct {
	// Levels refuses writes that are not the core's at level 3, with 503, and gives
	// the request's context its Degrade.
	Levels *Levels

	// Core says whether a request belongs to the core, which level 3 does not refuse.
	// Requests by GET, HEAD and OPTIONS are not asked about: they write nothing. Nil:
	// all are the core's.
	Core func(*http.Request) bool

	// Limit is asked for the tokens of a request: of its line, its customer, or both.
	// What it refuses is answered with 429.
	Limit func(*http.Request) Verdict

	// Gate has the request wait for one of its workers; it needs a Concurrency. What
	// it refuses is answered with 503.
	Gate *Gate

	// Priority says what the priority of a request is. Nil: the middle.
	Priority func(*http.Request) Priority

	// Inherit takes the priority from [PriorityHeader] where there is one, and asks
	// Priority where there is none. Set it in services that only one's own services
	// can reach: anyone else would call himself the most important. False: the
	// header is not looked at.
	Inherit bool

	// SlowDown is what clients are asked for at level 1 and above, in whole seconds.
	// Zero means one second.
	SlowDown time.Duration
}

// Handler returns a handler that asks its layers before it calls next, in the order
// of the options. What they refuse is answered with 429 or 503 and a Retry-After in
// whole seconds: what the verdict says, and up to half of that more, at least two
// seconds, drawn anew each time, so that those refused together do not come back
// together. A cost or a key that can never be admitted is answered with 400.
//
// It fails with an [*OptionError] on options outside their range. The options are
// copied.
func Handler(next http.Handler, opts *HandlerOptions) (http.Handler, error) {
	var o HandlerOptions
	if opts != nil {
		o = *opts
	}
	o.SlowDown = cmp.Or(o.SlowDown, time.Second)
	switch {
	case next == nil:
		return nil, badOption("handler", "next", "is nil")
	case o.Gate != nil && o.Gate.opts.Concurrency == 0:
		return nil, badOption("handler", "Gate", "has no Concurrency")
	case o.SlowDown < time.Second:
		return nil, badOption("handler", "SlowDown", "is %v, below a second", o.SlowDown)
	}
	return &handler{o, next}, nil
}

type handler struct {
	HandlerOptions
	next http.Handler
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	if h.Levels != nil {
		v := h.Levels.Verdict(reads(r) || h.Core == nil || h.Core(r))
		if v.Degrade.Has(SlowClients) {
			w.Header().Set(SlowDownHeader, strconv.Itoa(int(h.SlowDown/time.Second)))
		}
		if !v.Admit {
			refuse(w, http.StatusServiceUnavailable, v)
			return
		}
		ctx = WithDegrade(ctx, v.Degrade)
	}
	if h.Limit != nil {
		if v := h.Limit(r); !v.Admit {
			refuse(w, statusOf(v), v)
			return
		}
	}
	ctx = WithPriority(ctx, h.priority(r))
	if h.Gate == nil {
		h.next.ServeHTTP(w, r.WithContext(ctx))
		return
	}
	release, v := h.Gate.Acquire(ctx)
	if !v.Admit {
		refuse(w, http.StatusServiceUnavailable, v)
		return
	}
	defer release()
	h.next.ServeHTTP(w, r.WithContext(ctx))
}

func (h *handler) priority(r *http.Request) Priority {
	if h.Inherit {
		if p, ok := PriorityFromHeader(r.Header); ok {
			return p
		}
	}
	if h.Priority == nil {
		return Priority{}
	}
	return h.Priority(r)
}

func reads(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
}

// statusOf is the answer to what a limit refuses.
func statusOf(v Verdict) int {
	switch v.Reason {
	case CostInvalid, KeyInvalid:
		return http.StatusBadRequest
	case StoreDown, Overload, NonCore, Expired, GivenUp:
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}

func refuse(w http.ResponseWriter, status int, v Verdict) {
	if status != http.StatusBadRequest {
		w.Header().Set("Retry-After", strconv.FormatInt(retryAfter(v.RetryAfter), 10))
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, v.Reason.String(), status)
}

// retryAfter is a wait in whole seconds, with jitter.
func retryAfter(wait time.Duration) int64 {
	wait = min(max(wait, 0), maxRetryAfter)
	spread := max(wait/2, 2*time.Second)
	wait += time.Duration(rand.Int64N(int64(spread)))
	return max(int64((wait+time.Second-1)/time.Second), 1)
}

const maxRetryAfter = time.Hour
