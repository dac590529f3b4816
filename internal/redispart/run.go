package redispart

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A Script is a Lua script and its digest.
type Script struct{ text, hash string }

// NewScript returns the script with this text.
func NewScript(text string) *Script {
	return &Script{text: text, hash: redis.NewScript(text).Hash()}
}

// A Call is one run of a script in one partition.
type Call struct {
	Keys []string // every key that the script touches, all with the partition's tag
	Args []any    // ARGV: strings, byte slices or integers

	Reply []string // what the script returned: a string, or an array of strings and integers
	Err   error    // why there is no reply; whether the script ran is then unknown
}

// Run runs the script once for each call, all in one pipeline; on a cluster that
// is one pipeline for each node. It sets Reply or Err of each call, and returns
// an error when no call has a reply.
//
// A server that does not know the script (it was restarted, or the script cache
// was flushed) is sent the text in a second pipeline. It has run nothing before.
func (p *Partitions) Run(ctx context.Context, s *Script, calls []Call) error {
	if len(calls) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	p.send(ctx, "evalsha", s.hash, calls, func(*Call) bool { return true })
	unknown := false
	for i := range calls {
		unknown = unknown || isUnknown(calls[i].Err)
	}
	if unknown {
		p.send(ctx, "eval", s.text, calls, func(c *Call) bool { return isUnknown(c.Err) })
	}
	for i := range calls {
		if calls[i].Err == nil {
			return nil
		}
	}
	return calls[0].Err
}

// send runs the chosen calls in one pipeline. Keys go by pointer, since an
// interface that holds a string costs an allocation.
func (p *Partitions) send(ctx context.Context, command, script string, calls []Call, chosen func(*Call) bool) {
	pipe := p.client.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for i := range calls {
		c := &calls[i]
		if !chosen(c) {
			continue
		}
		args := make([]any, 3, 3+len(c.Keys)+len(c.Args))
		args[0], args[1], args[2] = command, script, len(c.Keys)
		for k := range c.Keys {
			args = append(args, &c.Keys[k])
		}
		cmds[i] = redis.NewCmd(ctx, append(args, c.Args...)...)
		_ = pipe.Process(ctx, cmds[i]) // queues it; the error of each call is read below
	}
	_, _ = pipe.Exec(ctx)
	for i, cmd := range cmds {
		if cmd != nil {
			calls[i].Reply, calls[i].Err = readReply(cmd)
		}
	}
}

func readReply(cmd *redis.Cmd) ([]string, error) {
	reply, err := cmd.Result()
	if err != nil && cmd.Val() == nil { // go-redis may put the error of one node on calls that others have answered
		return nil, err
	}
	switch reply := reply.(type) {
	case string:
		return []string{reply}, nil
	case []any:
		values := make([]string, len(reply))
		for i, v := range reply {
			switch v := v.(type) {
			case string:
				values[i] = v
			case int64:
				values[i] = strconv.FormatInt(v, 10)
			default:
				return nil, fmt.Errorf("a script returned a %T in its array", v)
			}
		}
		return values, nil
	}
	return nil, fmt.Errorf("a script returned a %T", reply)
}

func isUnknown(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}
