package backpressure

import (
	"cmp"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/pawl-go/pawl/retry"
)

// A Client is the client half: an [http.RoundTripper] that does as servers ask. Make
// it with [NewClient]. It is safe for concurrent use and starts no goroutine.
//
//   - After 429 or 503 no request is sent to that host before its Retry-After has
//     passed, nor before the backoff has, which grows with each further refusal: by
//     default 1, 2, 4, 8, 16 and 30 seconds, and up to a tenth of a Retry-After more,
//     each request with its own, so that they do not come back together.
//   - A refused request is sent again, if it can be: its body can be had again, and it
//     was answered with 429, or is idempotent: by method, or by an Idempotency-Key.
//     Otherwise, and after MaxAttempts, the caller gets the refusal.
//   - A wait that the request's deadline does not leave time for is not begun: the
//     caller gets the refusal, or a [*RefusedError] if there was none yet.
//   - A server that asks to slow down ([SlowDownHeader]) gets so much time between
//     two requests.
//   - The priority of the request's context goes along, in [PriorityHeader].
//
// Inside of a retry by retry.Do it sends once, since the layer above tries again.
type Client struct {
	opts ClientOptions
	base http.RoundTripper

	mu    sync.Mutex
	hosts map[string]*hostState
}

// ClientOptions set up a [Client]. The zero value of each field is a working default.
type ClientOptions struct {
	// Backoff is the least time after a refusal. Zero means retry.Gradient: 1 s, twice
	// as long each time, at most 30 s.
	Backoff retry.Backoff

	// MaxAttempts is how often a request is sent, the first time included. Zero means
	// 5; with 1 nothing is sent again, and waits of the host are kept all the same.
	MaxAttempts int

	// MaxWait is the longest that a request waits in all, and that a host is paused.
	// A request that would wait for longer gets its refusal, or a [*RefusedError] if
	// it was not sent yet. Zero means one minute.
	MaxWait time.Duration

	// External says that a host is not one's own: no priority is sent to it. Nil: all
	// hosts are one's own.
	External func(host string) bool
}

// NewClient returns a client over another transport; nil means
// http.DefaultTransport. Nil options mean defaults. It fails with an [*OptionError]
// on an option outside its range.
func NewClient(base http.RoundTripper, opts *ClientOptions) (*Client, error) {
	var o ClientOptions
	if opts != nil {
		o = *opts
	}
	if base == nil {
		base = http.DefaultTransport
	}
	if o.Backoff.IsZero() {
		o.Backoff = retry.Gradient()
	}
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 5)
	o.MaxWait = cmp.Or(o.MaxWait, time.Minute)
	if err := o.Backoff.Validate(); err != nil {
		return nil, badOption("client", "Backoff", "is not valid: %v", err)
	}
	switch {
	case o.MaxAttempts < 1:
		return nil, badOption("client", "MaxAttempts", "is %d, below one", o.MaxAttempts)
	case o.MaxWait < 0:
		return nil, badOption("client", "MaxWait", "is %v, below zero", o.MaxWait)
	}
	return &Client{opts: o, base: base, hosts: make(map[string]*hostState)}, nil
}

// hostState is what a host has asked for.
type hostState struct {
	until    time.Time     // nothing is sent before
	refusals int           // in a row, one for each pause
	paused   time.Time     // when the last pause began
	wait     time.Duration // of the pause
	slow     time.Duration // between two requests
	next     time.Time     // when the next may be sent, if slow
}

// maxHosts is how many hosts are remembered: the ones that asked for something.
const maxHosts = 1024

// RoundTrip implements [http.RoundTripper].
func (c *Client) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, host := req.Context(), req.URL.Host
	nested := retry.AttemptFrom(ctx) > 1
	left := c.opts.MaxWait
	var refused *http.Response
	for attempt := 1; ; attempt++ {
		waited, err := c.pause(ctx, host, left)
		left -= waited
		if err != nil && refused != nil && ctx.Err() == nil {
			return refused, nil
		}
		discard(refused)
		if err != nil {
			closeBody(req)
			return nil, err
		}
		try, err := c.request(req, attempt)
		if err != nil {
			return nil, err
		}
		sent := time.Now()
		resp, err := c.base.RoundTrip(try)
		if err != nil {
			return nil, err
		}
		asked := c.learn(host, sent, resp)
		if !isRefusal(resp) || attempt >= c.opts.MaxAttempts || nested ||
			asked > left || !canRepeat(req, resp.StatusCode) {
			return resp, nil
		}
		refused = resp
	}
}

// pause waits until a request may be sent to the host: as long as it is paused,
// which may become longer meanwhile, and then for its turn if the host is slow. It
// returns how long it waited.
func (c *Client) pause(ctx context.Context, host string, left time.Duration) (waited time.Duration, err error) {
	for {
		wait := c.paused(host)
		if wait <= 0 {
			break
		}
		if err := await(ctx, wait, left-waited); err != nil {
			return waited, err
		}
		waited += wait
	}
	wait := c.turn(host)
	return waited + wait, await(ctx, wait, left-waited)
}

// request is the request to send: a copy, since a RoundTripper changes none.
func (c *Client) request(req *http.Request, attempt int) (*http.Request, error) {
	try := req.Clone(req.Context())
	if p, ok := PriorityFrom(req.Context()); ok && (c.opts.External == nil || !c.opts.External(req.URL.Host)) {
		p.SetHeader(try.Header)
	}
	if attempt > 1 && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		try.Body = body
	}
	return try, nil
}

// paused is how long a request has to wait for its host, with a part of a tenth that
// is its own.
func (c *Client) paused(host string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.hosts[host]
	if h == nil {
		return 0
	}
	wait := time.Until(h.until)
	if wait <= 0 {
		return 0
	}
	return wait + time.Duration(rand.Int64N(int64(h.wait)/10+1))
}

// turn takes the next place of a host that asked to slow down, and returns how long
// it is until then: at most MaxWait, from where on places are shared.
func (c *Client) turn(host string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.hosts[host]
	if h == nil || h.slow == 0 {
		return 0
	}
	now := time.Now()
	at := h.next
	if at.Before(now) {
		at = now
	}
	if most := now.Add(c.opts.MaxWait); at.After(most) {
		at = most
	} else {
		h.next = at.Add(h.slow)
	}
	return at.Sub(now)
}

// learn keeps what a response asks for, and returns its Retry-After.
func (c *Client) learn(host string, sent time.Time, resp *http.Response) time.Duration {
	slow, _ := strconv.Atoi(resp.Header.Get(SlowDownHeader))
	slowFor := min(time.Duration(min(max(slow, 0), 3600))*time.Second, c.opts.MaxWait)
	refusal := isRefusal(resp)
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.hosts[host]
	if !refusal && slowFor == 0 {
		if h != nil && sent.After(h.paused) { // an older answer is no news
			delete(c.hosts, host)
		}
		return 0
	}
	if h == nil {
		c.makeRoom()
		h = &hostState{}
		c.hosts[host] = h
	}
	if h.slow == 0 && slowFor > 0 {
		h.next = time.Now().Add(slowFor)
	}
	h.slow = slowFor
	if !refusal {
		if sent.After(h.paused) {
			h.refusals = 0
		}
		return 0
	}
	asked := askedBy(resp)
	if !sent.Before(h.paused) { // not one that was under way when the pause began
		h.refusals++
		h.paused = time.Now()
	}
	wait := min(c.opts.Backoff.DelayAfter(h.refusals, rand.Uint64(), asked), c.opts.MaxWait)
	if until := time.Now().Add(wait); until.After(h.until) {
		h.until, h.wait = until, wait
	}
	return asked
}

// makeRoom forgets hosts whose pause is over, or any one if all still have theirs.
func (c *Client) makeRoom() {
	if len(c.hosts) < maxHosts {
		return
	}
	now, any := time.Now(), ""
	for name, h := range c.hosts {
		any = name
		if now.After(h.until) {
			delete(c.hosts, name)
		}
	}
	if len(c.hosts) >= maxHosts {
		delete(c.hosts, any)
	}
}

func isRefusal(resp *http.Response) bool {
	return resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable
}

// askedBy is the Retry-After of a response; zero if it makes no sense.
func askedBy(resp *http.Response) time.Duration {
	if e, ok := retry.Status(resp.StatusCode, resp.Header).(*retry.StatusError); ok {
		return e.After
	}
	return 0
}

// canRepeat says whether a request can be sent again after that refusal: 429 says
// that nothing was done, 503 does not.
func canRepeat(req *http.Request, status int) bool {
	if req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		return false
	}
	if status == http.StatusTooManyRequests {
		return true
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return req.Header.Get("Idempotency-Key") != "" || req.Header.Get("X-Idempotency-Key") != ""
}

// fits says whether there is time for a wait before the deadline.
func fits(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > wait
}

// await waits, unless that is longer than may be or than the deadline leaves.
func await(ctx context.Context, d, most time.Duration) error {
	if d <= 0 {
		return nil
	}
	if !fits(ctx, d) {
		return Verdict{Reason: Expired, RetryAfter: d}.Err()
	}
	if d > most {
		return Verdict{Reason: Paused, RetryAfter: d}.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// discard reads the rest of a response, so that its connection can be used again.
func discard(resp *http.Response) {
	if resp != nil {
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
		_ = resp.Body.Close()
	}
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
