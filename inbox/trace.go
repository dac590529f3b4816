package inbox

import "context"

// Trace carries a trace context from the acceptance of an event to its handler.
// Package pawlotel makes one for the W3C trace context. Neither function may block.
// A function that panics is logged, and the event goes without a trace.
type Trace struct {
	// Inject returns the trace context of ctx as text, at most 1,024 bytes of UTF-8
	// without NUL; anything else is dropped. It is stored with the event in clear.
	// ctx is Accept's, or that of the request. Nil: Event.Trace is stored as it is.
	Inject func(ctx context.Context) string

	// Extract returns ctx with the trace context that Inject gave. The handler gets
	// it: what is derived from ctx keeps its end and its token. Nil: the handler
	// finds the text in Record.Trace.
	Extract func(ctx context.Context, trace string) context.Context
}

// inject adds the trace context in which an event arrives.
func (c *core) inject(ctx context.Context, e *Event) {
	if c.opts.Trace == nil || c.opts.Trace.Inject == nil {
		return
	}
	defer c.traceless(ctx, "Inject")
	s := c.opts.Trace.Inject(ctx)
	switch {
	case s == "":
	case !validText(s, maxField):
		c.warn(ctx, "the trace context is dropped, since it is not at most 1,024 bytes of UTF-8 without NUL", "bytes", len(s))
	default:
		e.Trace = s
	}
}

// extract returns the context of a handler with the trace of its event, or nil.
func (c *core) extract(ctx context.Context, trace string) (traced context.Context) {
	if trace == "" || c.opts.Trace == nil || c.opts.Trace.Extract == nil {
		return nil
	}
	defer c.traceless(ctx, "Extract")
	return c.opts.Trace.Extract(ctx, trace)
}

func (c *core) traceless(ctx context.Context, name string) {
	if recover() != nil {
		c.warn(ctx, "Options.Trace."+name+" panicked; the event goes without a trace", "stack", stack())
	}
}
