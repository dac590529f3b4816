package redisreconcile

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

//go:embed timeline.lua
var timelineText string

//go:embed append.lua
var appendText string

//go:embed history.lua
var historyText string

//go:embed erase.lua
var eraseText string

var (
	appendScript  = script(timelineText, appendText)
	historyScript = script(timelineText, historyText)
	eraseScript   = script(timelineText, eraseText)
)

// A TimelineStore keeps the observations of a [reconcile.Timeline] in Redis. It implements
// [reconcile.TimelineStore] and [reconcile.TimelineForgetter], and is safe for concurrent use. [Store.Timeline] makes one.
//
// All of a kind lies in one partition: so whatever names a message is found by each of its
// names, and on a cluster a kind is as fast, and as large, as one node.
//
// An observation is kept until no other has come of its message for the Retention of the
// timeline, and [Store.Sweep] has come by.
type TimelineStore struct{ store *Store }

var (
	_ reconcile.TimelineStore     = (*TimelineStore)(nil)
	_ reconcile.TimelineForgetter = (*TimelineStore)(nil)
)

// Append implements [reconcile.TimelineStore]. It is one round trip for up to 512
// observations, which are stored in one step.
func (t *TimelineStore) Append(ctx context.Context, p reconcile.TimelineParams, os []reconcile.Observation) ([]reconcile.Appending, error) {
	answers := make([]reconcile.Appending, len(os))
	part := t.store.parts.Of(p.Kind)
	err := send(ctx, t.store, os, batch[reconcile.Observation]{
		script: appendScript, keys: t.store.timeline,
		header: []any{p.Kind, span(p.Ahead), span(p.Behind), decimal(int64(p.Most)), span(p.Retention)},
		part:   func(*reconcile.Observation) int { return part },
		size:   func(*reconcile.Observation) int { return 0 },
		encode: func(args []any, o *reconcile.Observation) []any {
			return append(args, o.Event, o.Message, o.Own, said(o.Said), observationRow(o))
		},
		read: letters(func(i int, letter byte) error {
			switch letter {
			case '1', '2', '3', '4':
				answers[i] = reconcile.Appending(letter - '0')
				return nil
			case 'x':
				return errRow
			}
			return errReply
		}),
	})
	if err != nil {
		return nil, failed(ctx, "append", err)
	}
	return answers, nil
}

// said is when something happened, in microseconds. What lies outside of what can be
// written so is not known.
func said(t time.Time) string {
	if y := t.UTC().Year(); t.IsZero() || y < 1 || y > 9999 {
		return none
	}
	return decimal(t.UnixMicro())
}

// observationRow is the part of the row e of timeline.lua that the caller brings.
func observationRow(o *reconcile.Observation) string {
	parts := []string{o.Message, o.Own, o.Status, o.Participant, o.Source}
	var b strings.Builder
	b.WriteString(base.EncodeToString(o.Digest[:]))
	for _, s := range parts {
		fmt.Fprintf(&b, " %d", len(s))
	}
	b.WriteByte(' ')
	for _, s := range parts {
		b.WriteString(s)
	}
	b.WriteString(o.Code)
	return b.String()
}

func readObservation(o *reconcile.Observation, row string) bool {
	w := words(row, 11)
	o.Received = time.UnixMicro(w.int())
	said := w.text()
	o.Absurd, o.Digest = w.flag(), w.digest()
	var sizes [5]int64
	for i := range sizes {
		sizes[i] = w.int()
	}
	for i, s := range []*string{&o.Message, &o.Own, &o.Status, &o.Participant, &o.Source} {
		*s = w.cut(sizes[i])
	}
	o.Code = w.text()
	if said != none {
		one := reader{values: []string{said}}
		o.Said = time.UnixMicro(one.int())
		w.bad = w.bad || one.bad
	}
	o.At = o.Said
	if o.Absurd {
		o.At = o.Received
	}
	return !w.bad
}

// Read implements [reconcile.TimelineStore]. It is two or three round trips, and one more
// for each 1,000 observations or 8 MiB; so it is not one atomic step: what is
// appended meanwhile may be there or not. All messages of an Own are read, also when they
// have more than [reconcile.MaxHistory] observations.
func (t *TimelineStore) Read(ctx context.Context, p reconcile.TimelineParams, ref reconcile.Ref) (reconcile.History, error) {
	r := reading{store: t.store, kind: p.Kind, keys: t.store.timeline[t.store.parts.Of(p.Kind)]}
	if err := r.read(ctx, ref); err != nil {
		return reconcile.History{}, failed(ctx, "read", err)
	}
	r.cut()
	return r.history, nil
}

// Forget implements [reconcile.TimelineForgetter]. It reads first, and then erases subject by
// subject, each in one step, the one that was asked for last: so when it fails in between, the
// rest is found and erased when it is sent again. A subject with 10,000 observations stops the
// server for some hundred milliseconds.
func (t *TimelineStore) Forget(ctx context.Context, p reconcile.TimelineParams, ref reconcile.Ref) (n int, err error) {
	r := reading{store: t.store, kind: p.Kind, keys: t.store.timeline[t.store.parts.Of(p.Kind)]}
	if err := r.read(ctx, ref); err != nil {
		return 0, failed(ctx, "forget", err)
	}
	slices.Reverse(r.names)
	for len(r.names) > 0 {
		args := []any{p.Kind, decimal(maxBatch)}
		for _, name := range r.names[:min(len(r.names), maxLook)] {
			args = append(args, name)
		}
		reply, err := t.store.call(ctx, eraseScript, r.keys, args...)
		if err != nil {
			return n, failed(ctx, "forget", err)
		}
		subjects := int(reply.int())
		n += int(reply.int())
		if reply.bad || subjects < 1 || subjects > len(r.names) {
			return n, failed(ctx, "forget", errReply)
		}
		r.names = r.names[subjects:]
	}
	return n, nil
}

// A reading is what one call of Read has found so far.
type reading struct {
	store   *Store
	kind    string
	keys    []string
	history reconcile.History
	names   []string // of the subjects, the one that was asked for first
}

func (r *reading) read(ctx context.Context, ref reconcile.Ref) error {
	if ref.Event != "" {
		reply, err := r.store.call(ctx, historyScript, r.keys, r.kind, ref.Event, "0", "0")
		if err != nil || !reply.more() {
			return err
		}
		ref.Message, ref.Own = reply.text(), reply.text()
	}
	if ref.Message != "" {
		owns := map[string]bool{"": true}
		var names []string
		err := r.subjects(ctx, []string{"m" + ref.Message}, func(o *reconcile.Observation) {
			if !owns[o.Own] {
				owns[o.Own] = true
				names = append(names, "o"+o.Own)
			}
		})
		if err != nil {
			return err
		}
		return r.subjects(ctx, names, nil)
	}
	names := []string{"o" + ref.Own}
	err := r.lists(ctx, []string{"j" + r.kind + "\x00" + ref.Own + "\x00"}, func(_ int, _ bool, values *reader) error {
		for values.more() {
			names = append(names, "m"+values.text())
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.subjects(ctx, names, nil)
}

// subjects reads all observations of subjects, and shows them to each, if there is one.
func (r *reading) subjects(ctx context.Context, names []string, each func(*reconcile.Observation)) error {
	r.names = append(r.names, names...)
	lists := make([]string, len(names))
	for i, name := range names {
		lists[i] = "i" + r.kind + "\x00" + name + "\x00"
	}
	return r.lists(ctx, lists, func(_ int, first bool, values *reader) error {
		if dropped := values.int(); first {
			r.history.Dropped += int(dropped)
		}
		for values.more() {
			o := reconcile.Observation{Ref: reconcile.Ref{Event: values.text()}}
			if !readObservation(&o, values.text()) {
				return errRow
			}
			if each != nil {
				each(&o)
			}
			r.history.Observations = append(r.history.Observations, o)
		}
		if len(r.history.Observations) > 2*reconcile.MaxHistory {
			r.cut()
		}
		return nil
	})
}

// lists reads lists to their ends, a part of them in each round trip. use is called with the
// values of a part of a list, and whether it is the first.
func (r *reading) lists(ctx context.Context, lists []string, use func(list int, first bool, values *reader) error) error {
	after := ""
	for at := 0; at < len(lists); {
		args := []any{r.kind, "", decimal(maxLook), decimal(maxBytes)}
		for i, list := range lists[at:min(at+maxLook, len(lists))] {
			if i > 0 {
				after = ""
			}
			args = append(args, list, after)
		}
		after, _ = args[5].(string)
		reply, err := r.store.call(ctx, historyScript, r.keys, args...)
		if err != nil {
			return err
		}
		ended, stopped := int(reply.int()), reply.text()
		for i := 0; reply.more(); i++ {
			n := int(reply.int())
			if n < 0 || n > len(reply.values) || at+i >= len(lists) {
				return errReply
			}
			values := &reader{values: reply.values[:n]}
			reply.values = reply.values[n:]
			if err := use(at+i, i > 0 || after == "", values); err != nil {
				return err
			}
			if values.bad {
				return errReply
			}
		}
		if reply.bad || ended == 0 && (stopped == "" || stopped == after) {
			return errReply
		}
		at, after = at+ended, stopped
	}
	return nil
}

// cut puts what was found in order, and leaves out what is too much.
func (r *reading) cut() {
	found := r.history.Observations
	slices.SortFunc(found, func(a, b reconcile.Observation) int {
		return cmp.Or(a.Received.Compare(b.Received), cmp.Compare(a.Event, b.Event))
	})
	if len(found) > reconcile.MaxHistory {
		clear(found[reconcile.MaxHistory:])
		r.history.Observations, r.history.More = found[:reconcile.MaxHistory], true
	}
}
