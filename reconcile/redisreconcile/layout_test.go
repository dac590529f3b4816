package redisreconcile_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/reconcile"
	"github.com/pawl-go/pawl/reconcile/redisreconcile"
)

var update = flag.Bool("update", false, "write down the layout anew")

const layoutFile = "testdata/layout1.txt"

// What is stored looks as it did when layout 1 was made. When it has to look otherwise,
// what an older version has stored cannot be read any longer: layoutVersion has to rise,
// and the file is written anew with -update.
func TestLayout(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	server.SetTime(time.UnixMicro(1_800_000_000_000_000))
	client := newClient(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}})
	store := newWith(t, client, redisreconcile.Options{Partitions: 1})
	scenario(t, store)
	var lines []string
	for _, room := range []string{"", "t", "c"} {
		for field, value := range client.HGetAll(t.Context(), store.Tag(0)+":"+room+"h").Val() {
			lines = append(lines, fmt.Sprintf("%sh %q %q", room, field, value))
		}
		for _, member := range client.ZRange(t.Context(), store.Tag(0)+":"+room+"z", 0, -1).Val() {
			lines = append(lines, fmt.Sprintf("%sz %q", room, member))
		}
	}
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile(layoutFile, []byte(got), 0o644))
	}
	want, err := os.ReadFile(layoutFile)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// scenario stores a row of every kind.
func scenario(t *testing.T, s *redisreconcile.Store) {
	var n [16]byte
	nonce := func() [16]byte {
		n[0]++
		return n
	}
	var es []reconcile.Entry
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		a := ask(key)
		a.Nonce, a.Fingerprint, a.Later = nonce(), [32]byte{1}, key == "g"
		es = append(es, begin(t, s, a)[0].Entry)
	}
	again := with(reconcile.VerbFail, es[2])
	again.Again, again.Delay = true, time.Second
	settle(t, s, with(reconcile.VerbAccept, es[0]), with(reconcile.VerbConfirm, es[1]), again, with(reconcile.VerbDoubt, es[3]), with(reconcile.VerbAsk, es[4]))
	outside := receipt("b", reconcile.Failed)
	outside.Nonce, outside.Note = nonce(), "\x01\xc3\xa9 2 "
	_, err := s.Settle(t.Context(), params, []reconcile.Settlement{outside})
	require.NoError(t, err)
	claimed, _, err := s.Claim(t.Context(), params, reconcile.ClaimAsk{Nonce: nonce(), N: 2})
	require.NoError(t, err)
	require.Len(t, claimed, 2)
	settle(t, s, with(reconcile.VerbConfirm, es[5]), reconcile.Settlement{Verb: reconcile.VerbForget, Key: "e"})

	few, at := seen, time.UnixMicro(1_800_000_000_000_000)
	few.Most = 2
	var os []reconcile.Observation
	for i, ref := range []reconcile.Ref{{Event: "1", Message: "m", Own: "own"}, {Event: "2", Message: "m"}, {Event: "3", Message: "m"}, {Event: "4", Own: "own"}} {
		os = append(os, reconcile.Observation{Ref: ref, Status: "failed", Participant: "p", Source: "lookup", Code: "131026", Said: at.Add(-time.Hour * time.Duration(i)), Digest: [32]byte{2}})
	}
	os[3].Said = time.Time{}
	_, err = s.Timeline().Append(t.Context(), few, os)
	require.NoError(t, err)

	for i, verb := range []reconcile.ReportVerb{reconcile.ReportSuspect, reconcile.ReportRaise, reconcile.ReportRaise, reconcile.ReportRaise, reconcile.ReportAcknowledge, reconcile.ReportResolve} {
		r := reportOf(verb, []string{"w", "x", "y", "z", "y", "z"}[i])
		r.Nonce, r.By, r.Delay = nonce(), "ana", time.Minute
		_, err = s.Checks().Report(t.Context(), checking, []reconcile.Report{r})
		require.NoError(t, err)
	}
	require.NoError(t, s.Checks().Tally(t.Context(), checking, []reconcile.Cell{{Series: "s", Start: at.Add(-time.Hour), Writer: someWriter, N: 1 << 60}}))
}
