package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/dlq"
	"github.com/pawl-go/pawl/order"
	"github.com/pawl-go/pawl/reconcile"
)

// gatewayAlone starts a gateway, whose receipts nobody takes.
func gatewayAlone(t *testing.T, faults float64) *gatewayClient {
	t.Helper()
	return gatewayThatLags(t, faults, lag)
}

func gatewayThatLags(t *testing.T, faults float64, lag time.Duration) *gatewayClient {
	t.Helper()
	g, err := newGateway(config{gatewayFaults: faults}, filepath.Join(t.TempDir(), "log"), false)
	if err != nil {
		t.Fatal(err)
	}
	g.setup.Receipts, g.setup.Lag = "http://127.0.0.1:1/", lag
	inBackground(t, g.run)
	t.Cleanup(func() {
		if err := g.close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// inBackground runs functions until the test ends.
func inBackground(t *testing.T, workers ...func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, len(workers))
	for _, run := range workers {
		go func() { ended <- run(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range workers {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

func replyOp(t *testing.T, id string) reconcile.Op {
	t.Helper()
	text, err := json.Marshal(reply{Operation: operationOf(id), Key: "meta/1/2"})
	if err != nil {
		t.Fatal(err)
	}
	return reconcile.Op{Key: id, Payload: text}
}

// The gateway sends twice what it is asked for twice: that it happens once is not its
// doing.
func TestTheGatewayRefusesNoRepetition(t *testing.T) {
	t.Parallel()
	g := gatewayAlone(t, 0)
	op := replyOp(t, "1")
	e, err := g.probe(t.Context(), op)
	if e.Seen != reconcile.SeenNothing || err != nil {
		t.Errorf("before: %+v, %v", e, err)
	}
	for range 2 {
		if _, err := g.call(t.Context(), op); err != nil {
			t.Error(err)
		}
	}
	if e, err = g.probe(t.Context(), op); e.Seen != reconcile.SeenDone || err != nil {
		t.Errorf("after: %+v, %v", e, err)
	}
	wantLog(t, g.setup.Log, "reply/1\tmeta/1/2\nreply/1\tmeta/1/2\n")

	address, err := g.where(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Post("http://"+address+"/send", "application/json", bytes.NewReader(op.Payload))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode < 400 {
		t.Errorf("a stranger is answered %s", answer.Status)
	}
}

// A gateway that is asked too early has not found yet what it has done. Whoever believes
// it sends twice; whoever waits for longer than it lags does not.
func TestTheProbeLags(t *testing.T) {
	t.Parallel()
	// An operation that is done at once, without an answer and without a receipt, and is
	// then not found for almost as long as it can be.
	s := &gatewayServer{gatewaySetup: gatewaySetup{Faults: 0.5}}
	var id string
	for i := 0; ; i++ {
		id = fmt.Sprint(i)
		o := operationOf(id)
		after, twice := s.chance("after", o, 0), s.chance("before", o, 1)
		if after > s.Faults/10 && after < s.Faults && s.chance("before", o, 0) > s.Faults && twice > s.Faults &&
			s.chance("receipt", o, 0) < s.Faults/3 && s.chance("find", o, 0) > s.Faults/2 && s.chance("find", o, 1) > s.Faults/2 {
			if c := s.chance("lag", o, 0); c < s.Faults && c > 0.98*s.Faults {
				break
			}
		}
	}
	for _, c := range []struct {
		lag, settle time.Duration
		once        bool
	}{{time.Hour, time.Millisecond, false}, {lag, settleTime, true}} {
		g := gatewayThatLags(t, s.Faults, c.lag)
		ledger, err := reconcile.New(reconcile.NewMemory(), &reconcile.Options{
			Receipt: true, Quiet: time.Millisecond, SettleTime: c.settle, MaxSends: 1000, // asked at once
		})
		if err != nil {
			t.Fatal(err)
		}
		op, probed := replyOp(t, id), 0
		probe := func(ctx context.Context, op reconcile.Op) (reconcile.Evidence, error) {
			probed++
			return g.probe(ctx, op)
		}
		for {
			if err := ledger.Do(t.Context(), op, g.call, probe); err == nil || errors.Is(err, reconcile.ErrAccepted) {
				break
			}
			if t.Context().Err() != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond) // the gateway is a process with a clock of its own
		}
		list, err := readReplies(g.setup.Log)
		if err != nil || len(list) == 0 || len(list) == 1 != c.once || probed == 0 {
			t.Errorf("settle time %v: sent %d times, probed %d times, %v", c.settle, len(list), probed, err)
		}
	}
}

// What the gateway refuses for good is kept as a letter, and the next reply of the
// account goes out.
func TestRefusedForGood(t *testing.T) {
	t.Parallel()
	g, err := newGateway(config{}, filepath.Join(t.TempDir(), "log"), false)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openMemory(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := s.replies
	workers, err := r.work(g)
	if err != nil {
		t.Fatal(err)
	}
	inBackground(t, workers...)
	good := replyOp(t, "good")
	for _, m := range []order.Outbound{
		{Operation: "bad", Customer: "meta/1/2", Payload: []byte("{}")},
		{Operation: "good", Customer: "meta/1/3", Payload: good.Payload},
	} {
		if _, err := r.lanes.Enqueue(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if err := wait(t.Context(), "replies are not settled", r.waiting); err != nil {
		t.Fatal(err)
	}
	wantLog(t, g.setup.Log, "reply/good\tmeta/1/2\n")
	letter, err := r.letters.Get(t.Context(), stream, "bad")
	if err != nil || letter.State != dlq.StateWaiting || string(letter.Payload) != "{}" || len(letter.Attempts) != 1 {
		t.Errorf("the letter is %+v, %v", letter, err)
	}
	var a account
	if err := r.count(t.Context(), g.setup.Log, &a); err != nil || a.Dead != 1 || a.InReview != 0 {
		t.Errorf("%+v, %v", a, err)
	}
}

// Whoever lost the lease of a lane while it sends may still find that nothing was sent:
// until then its reply stays in the lane.
func TestAReplyInOtherHandsStays(t *testing.T) {
	t.Parallel()
	s, err := openMemory(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := s.replies
	m := order.Sending{MessageID: "m", Account: "meta/1", Operation: "1", Payload: []byte("{}")}
	op := reconcile.Op{Key: m.MessageID, Account: m.Account, Payload: m.Payload, Fingerprint: sha256.Sum256(m.Payload)}
	began, end, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		ended <- r.ledger.Do(t.Context(), op, func(context.Context, reconcile.Op) ([]byte, error) {
			close(began)
			<-end
			return nil, reconcile.NotDone(errors.New("429"))
		}, nil)
	}()
	<-began
	if err := r.sender(nil)(t.Context(), m); !errors.Is(err, reconcile.ErrStarted) || order.CauseOf(err) == order.CauseRefused {
		t.Errorf("while another one sends it: %v", err)
	}
	close(end)
	if err := <-ended; !errors.Is(err, reconcile.ErrFailed) {
		t.Errorf("not sent: %v", err)
	}
	if err := r.sender(&gatewayClient{up: make(chan struct{})})(expired(t), m); err == nil {
		t.Error("it was not sent, and the lane let it go")
	}
}

// expired is a context that has ended.
func expired(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// A gateway that dies is started again and has its log.
func TestTheGatewayDies(t *testing.T) {
	t.Parallel()
	g := gatewayAlone(t, 0)
	before, err := g.where(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	op := replyOp(t, "1")
	if _, err := g.call(t.Context(), op); err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	process := g.process
	g.mu.Unlock()
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	for {
		address, err := g.where(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if address != before {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if e, err := g.probe(t.Context(), op); e.Seen != reconcile.SeenDone || err != nil {
		t.Errorf("%+v, %v", e, err)
	}
}

// repliesDue are the lines that the log should have for the bodies of the example,
// sorted: by the identities alone, and not as the program itself decides it.
func repliesDue(t *testing.T) (lines []string) {
	t.Helper()
	bodies, _, err := readBodies("")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bodies {
		events, err := b.provider.source.Decode(b.bytes)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			meta := strings.HasPrefix(e.ID, "meta/messages/messages/") || strings.HasPrefix(e.ID, "meta/fp/") && strings.HasPrefix(e.Type, "messages.messages.")
			ycloud := e.Provider == "ycloud" && bytes.Contains(e.Payload, []byte(`"whatsappInboundMessage"`))
			wechat := e.Provider == "wechat" && bytes.Contains(e.Payload, []byte("MsgId"))
			if meta || ycloud || wechat {
				lines = append(lines, "reply/"+e.ID+"\t"+e.Key)
			}
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

func sortedLines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	slices.Sort(lines)
	return lines
}

func TestEveryMessageHasOneReply(t *testing.T) {
	t.Parallel()
	want := repliesDue(t)
	log := filepath.Join(t.TempDir(), "replies.tsv")
	unknown := 0
	for _, args := range [][]string{
		nil,
		faults("-seed", "2", "-gateway-faults", "0.2"),
		faults("-store", "bolt", "-order", "-seed", "3", "-gateway-faults", "0.2"),
	} {
		a := runs(t, 0, append(args, "-gateway-log", log)...) // each begins it anew
		if got := sortedLines(t, log); !slices.Equal(got, want) {
			t.Errorf("%v: %d lines, want %d:\n%s", args, len(got), len(want), strings.Join(got, "\n"))
		}
		if a.Sent != len(want) || a.SentTwice+a.Dead+a.InReview != 0 {
			t.Errorf("%v: %+v", args, a)
		}
		unknown += a.UnknownSettled
	}
	if unknown == 0 {
		t.Error("no reply was ever unknown: the gateway did nothing wrong")
	}
}

// A second run on the same data sends nothing, and one that finds a line too many, too
// few or of nobody is not ok.
func TestRepliesAreJudged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := faults("-store", "bolt", "-data", filepath.Join(dir, "events.db"))
	first := runs(t, 0, data...)
	log := filepath.Join(dir, "events.db.gateway") // where it is if no other place is named
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	runs(t, 0, data...)
	wantLog(t, log, string(text))

	lines := strings.SplitAfter(string(text), "\n")
	for name, c := range map[string]struct {
		log         string
		sent, twice int
	}{
		"one twice":           {string(text) + lines[0], first.Sent, 1},
		"one missing":         {strings.Join(lines[1:], ""), first.Sent - 1, 0},
		"one of nobody":       {string(text) + "reply/stranger\tmeta/1/2\n", first.Sent + 1, 0},
		"one under other key": {strings.Replace(string(text), "\t", "\tx", 1), first.Sent, 0},
	} {
		if err := os.WriteFile(log, []byte(c.log), 0o600); err != nil {
			t.Fatal(err)
		}
		if a := runs(t, 1, data...); a.OK || a.Sent != c.sent || a.SentTwice != c.twice {
			t.Errorf("%s: %+v, first %+v", name, a, first)
		}
	}

	// Data that are new begin the log anew, so that it can be used again.
	other := runs(t, 0, "-store", "bolt", "-data", filepath.Join(dir, "other.db"), "-gateway-log", log)
	if other.Sent != first.Sent {
		t.Errorf("other data, same log: %+v", other)
	}
}

func TestOperationsAndAccounts(t *testing.T) {
	for key, want := range map[string]string{
		"meta/1/2": "meta/1", "meta/1": "meta/1", "meta/1/2/3": "meta/1", "wechat": "wechat",
	} {
		if got := accountOf(key); got != want {
			t.Errorf("account of %s: %s, want %s", key, got, want)
		}
	}
	long := strings.Repeat("x", 512)
	ids := map[string]bool{}
	for _, id := range []string{"a", long, long[1:], "a\tb", "a\nb"} {
		o := operationOf(id)
		if ids[o] || len(o) > 512 || strings.ContainsAny(o, "\t\n") {
			t.Errorf("operation of %.20q: %.40q", id, o)
		}
		ids[o] = true
	}
	if a := accountOf("meta/" + long); len(a) > 100 || a == accountOf("meta/"+long[1:]) {
		t.Errorf("a long account: %q", a)
	}
	if a := accountOf("meta/1~2/3"); strings.Contains(a, "~") {
		t.Errorf("an account with ~: %q", a)
	}
}
