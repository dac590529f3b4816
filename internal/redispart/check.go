package redispart

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// ErrLayout says that the keys in Redis were written with another number of
// partitions, or by a version with another layout.
var ErrLayout = errors.New("what is stored has another layout")

// CheckLayout compares the layout with the one that the first check wrote down,
// and writes it down when there is none. Another layout is [ErrLayout].
func (p *Partitions) CheckLayout(ctx context.Context) error {
	stored, err := p.client.SetArgs(ctx, p.marker, p.layout, redis.SetArgs{Mode: "NX", Get: true}).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil // there was none
	case err != nil:
		return err
	case stored != p.layout:
		return fmt.Errorf("%w: stored %q, wanted %q", ErrLayout, stored, p.layout)
	}
	return nil
}

// A Report says what the settings of the servers allow to be lost.
type Report struct {
	AtRisk    []string // reasons why acknowledged writes can be lost
	Unchecked []string // what a server would not say
}

// CheckSettings asks every master that the client knows for its settings. What a
// server does not tell is in Unchecked; an error means that one could not be
// reached.
func (p *Partitions) CheckSettings(ctx context.Context) (Report, error) {
	var mu sync.Mutex // masters of a cluster are asked concurrently
	var all Report
	ask := func(ctx context.Context, node *redis.Client) error {
		r, err := checkNode(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		all.AtRisk = append(all.AtRisk, r.AtRisk...)
		all.Unchecked = append(all.Unchecked, r.Unchecked...)
		return err
	}
	var err error
	switch c := p.client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, ask)
	case *redis.Ring:
		err = c.ForEachShard(ctx, ask)
	default:
		all, err = checkNode(ctx, c)
	}
	slices.Sort(all.AtRisk)
	slices.Sort(all.Unchecked)
	return Report{slices.Compact(all.AtRisk), slices.Compact(all.Unchecked)}, err
}

func checkNode(ctx context.Context, node redis.Cmdable) (Report, error) {
	var r Report
	settings := make(map[string]string)
	for _, name := range []string{"maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "min-replicas-to-write"} {
		answer, err := node.ConfigGet(ctx, name).Result()
		switch value, ok := answer[name]; {
		case err != nil && !isRefusal(err):
			return r, err
		case err != nil || !ok:
			r.Unchecked = append(r.Unchecked, "CONFIG GET "+name+" is not answered")
		default:
			settings[name] = value
		}
	}
	r.AtRisk = append(r.AtRisk, memoryRisks(settings)...)
	r.AtRisk = append(r.AtRisk, diskRisks(settings)...)

	info, err := node.Info(ctx, "replication").Result()
	if err != nil && !isRefusal(err) {
		return r, err
	}
	fields := infoFields(info)
	if err != nil || fields["role"] == "" {
		r.Unchecked = append(r.Unchecked, "INFO replication is not answered")
		return r, nil
	}
	r.AtRisk = append(r.AtRisk, replicaRisks(fields, settings)...)
	return r, nil
}

func memoryRisks(settings map[string]string) []string {
	policy, limited := settings["maxmemory-policy"], settings["maxmemory"] != "0"
	if policy == "" || policy == "noeviction" || !limited {
		return nil
	}
	return []string{"maxmemory-policy is " + policy + ": the server drops keys when memory is short; use noeviction"}
}

func diskRisks(settings map[string]string) []string {
	switch fsync := settings["appendfsync"]; {
	case settings["appendonly"] == "no":
		return []string{"appendonly is no: a restart loses what was written since the last snapshot"}
	case settings["appendonly"] == "yes" && fsync != "" && fsync != "always":
		return []string{"appendfsync is " + fsync + ": a crash of the machine loses the last second, or more"}
	}
	return nil
}

func replicaRisks(info, settings map[string]string) []string {
	if info["role"] != "master" {
		return []string{"the server is a replica: what it acknowledges can be replaced by its master's data"}
	}
	if n, _ := strconv.Atoi(info["connected_slaves"]); n == 0 {
		return nil
	}
	if settings["min-replicas-to-write"] == "0" {
		return []string{"replication is asynchronous and min-replicas-to-write is 0: a failover loses what no replica has yet, without a bound"}
	}
	return []string{"replication is asynchronous: a failover loses up to min-replicas-max-lag of writes"}
}

// isRefusal tells a server that answers with an error, for want of permission or
// of the command, from one that does not answer.
func isRefusal(err error) bool {
	var answered redis.Error
	return errors.As(err, &answered) && !strings.HasPrefix(err.Error(), "LOADING")
}

func infoFields(info string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}
