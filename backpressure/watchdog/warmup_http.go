package watchdog

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Handler returns a readiness handler for load balancers and orchestrators: 200 while
// the worker may claim, otherwise 503 with a Retry-After of what is left of the
// window, both with a small JSON:
//
//	{"ready":false,"phase":"observing","left_seconds":120,"checks":[{"name":"database","ok":true}]}
//
// It tells no errors, since they can hold secrets. Other methods than GET and HEAD are
// answered 405.
func (w *Warmup) Handler() http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			rw.Header().Set("Allow", "GET, HEAD")
			http.Error(rw, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		answer := w.readiness()
		body, err := json.Marshal(answer)
		if err != nil {
			http.Error(rw, "not ready", http.StatusServiceUnavailable)
			return
		}
		h := rw.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "no-store")
		status := http.StatusOK
		if !answer.Ready {
			status = http.StatusServiceUnavailable
			h.Set("Retry-After", strconv.FormatInt(max(answer.Left, 1), 10))
		}
		rw.WriteHeader(status)
		if req.Method == http.MethodGet {
			_, _ = rw.Write(append(body, '\n'))
		}
	})
}

type readiness struct {
	Ready  bool             `json:"ready"`
	Phase  string           `json:"phase"`
	Left   int64            `json:"left_seconds"` // rounded up
	Checks []checkReadiness `json:"checks"`
}

type checkReadiness struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
}

func (w *Warmup) readiness() readiness {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := readiness{Ready: w.phase == Joined, Phase: w.phase.String(), Checks: []checkReadiness{}}
	r.Left = int64((w.left() + time.Second - 1) / time.Second)
	for i, c := range w.o.Checks {
		r.Checks = append(r.Checks, checkReadiness{c.Name, w.results[i].ran && w.results[i].ok})
	}
	return r
}
