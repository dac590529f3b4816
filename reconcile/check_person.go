package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"

	"github.com/pawl-go/pawl/internal/authz"
)

// Findings returns at most q.N findings that the query selects, by check and subject. Fewer
// than q.N means that there are no more; go on with the last one's check and subject as
// q.After. N is 1 to 1,000; Kind is the checks'.
func (c *Checks) Findings(ctx context.Context, q FindingQuery) ([]Finding, error) {
	if q.N < 1 || q.N > maxPage {
		return nil, invalid("page of %d, not 1 to %d", q.N, maxPage)
	}
	for _, s := range []string{q.Check, q.Subject, q.Account, q.After.Check, q.After.Subject} {
		if !validText(s, MaxSubject) {
			return nil, invalid("query with a text of %d bytes, not 0 to %d of UTF-8 without NUL", len(s), MaxSubject)
		}
	}
	if q.State > Resolved {
		return nil, invalid("query for state %d, not 0 to %d", q.State, Resolved)
	}
	q.Kind = c.opts.Kind
	fs, err := c.store.List(ctx, q)
	if err != nil {
		c.counts.errors.Add(1)
		return nil, unavailable("list findings", err)
	}
	return fs, nil
}

// Acknowledge says that a person knows of an open finding, which is still looked at and
// still resolves itself. See Resolve.
func (c *Checks) Acknowledge(ctx context.Context, f Finding, reason string) error {
	return c.decide(ctx, "acknowledge", ReportAcknowledge, f, reason)
}

// Resolve ends a finding, as the person saw it, after Options.Authorize has said who that
// is. Actor and reason, 1 to MaxNote bytes of UTF-8 without NUL, are kept in its log. As long
// as it is seen again and again it stays resolved: a person has seen to it. When it was not
// seen for Options.Lull, and comes again, it is opened again.
//
// [ErrUnauthorized]: it was refused. [ErrChanged]: the finding is not as the person saw it,
// or there is none. [ErrNotOpen]: there is nothing to do about it, or, to acknowledge, not
// yet. In all these nothing was changed. [ErrUnavailable]: it may be recorded or not.
func (c *Checks) Resolve(ctx context.Context, f Finding, reason string) error {
	return c.decide(ctx, "resolve", ReportResolve, f, reason)
}

// Forget erases a finding with its log, for a person's right to be forgotten. If it
// still holds, it is found anew. Errors are those of Resolve; a finding that is not there is
// forgotten.
func (c *Checks) Forget(ctx context.Context, check, subject string) error {
	return c.decide(ctx, "forget", ReportForget, Finding{Check: check, Subject: subject}, "forgotten")
}

func (c *Checks) decide(ctx context.Context, name string, v ReportVerb, f Finding, reason string) error {
	switch {
	case !validKind(f.Check) || f.Subject == "" || !validText(f.Subject, MaxSubject):
		return invalid("%s: no finding is called so; nothing was changed", name)
	case f.Version == 0 && v != ReportForget:
		return invalid("%s of %s without the version that was seen; nothing was changed", name, short(f.Subject))
	case reason == "" || !validText(reason, MaxNote):
		return invalid("reason of %d bytes, not 1 to %d of UTF-8 without NUL; nothing was changed", len(reason), MaxNote)
	}
	actor, err := authz.Check(ctx, c.opts.Authorize, Action{Name: name, Kind: c.opts.Kind, Check: f.Check, Key: f.Subject})
	if err != nil {
		c.counts.refused.Add(1)
		return fmt.Errorf("reconcile: %s %s: %w", name, short(f.Subject), err)
	}
	os, err := c.report(ctx, []Report{{Verb: v, Check: f.Check, Subject: f.Subject, Nonce: newNonce(), Version: f.Version, By: actor, Note: reason}})
	if err != nil {
		return err
	}
	switch os[0] {
	case Applied:
		if v == ReportResolve {
			c.counts.resolved.Add(1)
		}
		if k := c.names[f.Check]; k != nil && v == ReportForget {
			k.resolved(f.Subject) // it is written at once when it is found anew
		}
		return nil
	case Changed:
		return fmt.Errorf("%w: %s %s; look again", ErrChanged, name, short(f.Subject))
	}
	return fmt.Errorf("%w: %s %s; nothing was changed", ErrNotOpen, name, short(f.Subject))
}

// Export writes the findings that the query selects as lines of JSON, and returns how many
// it wrote. Q.N and q.After are not used. What could mislead whoever looks at a line,
// control characters and marks that turn the direction of writing, is escaped. Subjects are
// written as they are: they are personal data where IDs are.
func (c *Checks) Export(ctx context.Context, w io.Writer, q FindingQuery) (n int, err error) {
	for q.N, q.After = 500, (FindingKey{}); ; {
		fs, err := c.Findings(ctx, q)
		if err != nil {
			return n, err
		}
		for i := range fs {
			line, err := json.Marshal(&fs[i])
			if err == nil {
				_, err = w.Write(append(plain(line), '\n'))
			}
			if err != nil {
				return n, fmt.Errorf("reconcile: export ended after %d findings: %w", n, err)
			}
			n++
		}
		if len(fs) < q.N {
			return n, nil
		}
		q.After = FindingKey{fs[len(fs)-1].Check, fs[len(fs)-1].Subject}
	}
}

// plain escapes control and format characters in a line of JSON, which can only stand in
// strings there.
func plain(line []byte) []byte {
	out := make([]byte, 0, len(line))
	for len(line) > 0 {
		r, size := utf8.DecodeRune(line)
		switch {
		case !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp):
			out = append(out, line[:size]...)
		case r > 0xffff:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		line = line[size:]
	}
	return out
}
