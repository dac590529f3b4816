package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/reconcile"
)

func newTimeline(t *testing.T, opts *reconcile.TimelineOptions) *reconcile.Timeline {
	t.Helper()
	tl, err := reconcile.NewTimeline(reconcile.NewTimelineMemory(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

func said(event, status string, at time.Time) reconcile.Observation {
	return reconcile.Observation{Ref: reconcile.Ref{Event: event, Message: "m"}, Status: status, Source: "webhook", Said: at}
}

func TestTimelineAppendIsIdempotent(t *testing.T) {
	tl := newTimeline(t, nil)
	now := time.Now()
	one := said("e1", "sent", now)
	for i, c := range []struct {
		o    reconcile.Observation
		want reconcile.Appending
	}{
		{one, reconcile.Appended},
		{one, reconcile.Repeated},
		{said("e1", "failed", now), reconcile.Differs},
		{said("", "read", now), reconcile.Appended},
		{said("", "read", now), reconcile.Repeated},
		{said("", "read", now.Add(time.Minute)), reconcile.Appended},
	} {
		as, err := tl.Append(t.Context(), c.o)
		if err != nil || as[0] != c.want {
			t.Fatalf("append %d: %v, %v, want %v", i, as, err, c.want)
		}
	}
	h, err := tl.Read(t.Context(), reconcile.Ref{Message: "m"})
	if err != nil || len(h.Observations) != 3 {
		t.Fatalf("%d observations, %v", len(h.Observations), err)
	}
	if got, want := tl.Stats(), (reconcile.TimelineStats{Appended: 3, Repeated: 2, Differs: 1}); got != want {
		t.Errorf("stats %+v", got)
	}
	// The same event from another source, or found by a lookup, is no other observation.
	one.Source = "lookup"
	if as, err := tl.Append(t.Context(), one); err != nil || as[0] != reconcile.Repeated {
		t.Errorf("from another source: %v, %v", as, err)
	}
}

func TestTimelineBadInput(t *testing.T) {
	tl := newTimeline(t, nil)
	good := said("e", "sent", time.Now())
	for name, change := range map[string]func(o *reconcile.Observation){
		"no message":              func(o *reconcile.Observation) { o.Message = "" },
		"no status":               func(o *reconcile.Observation) { o.Status = "" },
		"long status":             func(o *reconcile.Observation) { o.Status = strings.Repeat("s", 65) },
		"long event":              func(o *reconcile.Observation) { o.Event = strings.Repeat("s", 513) },
		"NUL":                     func(o *reconcile.Observation) { o.Code = "\x00" },
		"not UTF-8":               func(o *reconcile.Observation) { o.Source = "\xff" },
		"phone number as message": func(o *reconcile.Observation) { o.Message = "+8613800138000" },
		"phone number as own":     func(o *reconcile.Observation) { o.Own = "+8613800138000" },
		"phone number in a group": func(o *reconcile.Observation) { o.Participant = "+8613800138000" },
	} {
		bad := good
		change(&bad)
		_, err := tl.Append(t.Context(), good, bad)
		if !errors.Is(err, reconcile.ErrInvalid) || strings.Contains(err.Error(), "138") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if h, err := tl.Read(t.Context(), reconcile.Ref{Event: "e"}); err != nil || len(h.Observations) != 0 {
		t.Errorf("a refused call stored %d", len(h.Observations))
	}
	for _, ref := range []reconcile.Ref{{}, {Own: "+8613800138000"}, {Event: "\x00"}} {
		if _, err := tl.Read(t.Context(), ref); !errors.Is(err, reconcile.ErrInvalid) {
			t.Errorf("%+v: %v", ref, err)
		}
	}
	for name, o := range map[string]*reconcile.TimelineOptions{
		"kind": {Kind: "/"}, "ahead": {Ahead: -1}, "behind": {Behind: -1}, "most": {Most: 10_001}, "retention": {Retention: 1},
	} {
		if _, err := reconcile.NewTimeline(reconcile.NewTimelineMemory(), o); !errors.Is(err, reconcile.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, s := range []reconcile.TimelineStore{nil, (*reconcile.TimelineMemory)(nil)} {
		if _, err := reconcile.NewTimeline(s, nil); !errors.Is(err, reconcile.ErrInvalid) {
			t.Errorf("nil store: %v", err)
		}
	}
}

func TestAbsurdTimesDoNotSettle(t *testing.T) {
	for name, at := range map[string]time.Time{
		"zero": {}, "year 20000": time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC), "before year 1": time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC),
		"tomorrow": time.Now().Add(24 * time.Hour), "1970": time.Unix(0, 0),
	} {
		tl := newTimeline(t, nil)
		if _, err := tl.Append(t.Context(), said("e", "delivered", at)); err != nil {
			t.Fatal(err)
		}
		p, err := tl.Project(t.Context(), reconcile.Ref{Message: "m"})
		if err != nil || p.Status != "delivered" || p.Settled || !p.Basis.Absurd || !p.Basis.At.Equal(p.Basis.Received) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

func TestOverflowDoesNotSettle(t *testing.T) {
	tl := newTimeline(t, &reconcile.TimelineOptions{Most: 1})
	as, err := tl.Append(t.Context(), said("a", "delivered", time.Now()), said("b", "failed", time.Now()))
	if err != nil || as[1] != reconcile.Overflow {
		t.Fatalf("%v, %v", as, err)
	}
	if p, err := tl.Project(t.Context(), reconcile.Ref{Message: "m"}); err != nil || p.Settled || p.Status != "delivered" {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestMostInformative(t *testing.T) {
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(event, status string, said int) reconcile.Observation {
		t := base.Add(time.Duration(said) * time.Second)
		return reconcile.Observation{Ref: reconcile.Ref{Event: event}, Status: status, Said: t, At: t, Received: base.Add(time.Hour)}
	}
	absurd := func(o reconcile.Observation) reconcile.Observation { o.Absurd = true; return o }
	project := reconcile.MostInformative(reconcile.WhatsAppStatuses()...)
	for _, c := range []struct {
		name          string
		os            []reconcile.Observation
		status, basis string
		settled       bool
		contradicting string
	}{
		{name: "nothing"},
		{"sent", []reconcile.Observation{at("a", "sent", 0)}, "sent", "a", false, ""},
		{"rank, not time", []reconcile.Observation{at("a", "delivered", 0), at("b", "sent", 9)}, "delivered", "a", true, ""},
		{"the last of one rank", []reconcile.Observation{at("a", "read", 1), at("b", "read", 3), at("c", "read", 2)}, "read", "b", true, ""},
		{"failed is not the last word", []reconcile.Observation{at("a", "sent", 0), at("b", "failed", 1)}, "failed", "b", false, ""},
		{"delivered and failed", []reconcile.Observation{at("a", "failed", 1), at("b", "delivered", 2)}, "delivered", "b", false, "a"},
		{"failed and read", []reconcile.Observation{at("a", "read", 1), at("b", "failed", 2), at("c", "failed", 3)}, "read", "a", false, "bc"},
		{"a sensible time before an absurd one", []reconcile.Observation{at("a", "delivered", 1), absurd(at("b", "delivered", 9))}, "delivered", "a", true, ""},
		{"rank before a sensible time", []reconcile.Observation{at("a", "delivered", 1), absurd(at("b", "read", 9))}, "read", "b", false, ""},
		{"a status of next year", []reconcile.Observation{at("a", "delivered", 1), at("b", "telepathy", 2)}, "delivered", "a", true, ""},
	} {
		for range 10 { // the order of arrival is of no matter
			rand.Shuffle(len(c.os), func(i, j int) { c.os[i], c.os[j] = c.os[j], c.os[i] })
			p := project(c.os)
			var against strings.Builder
			for _, o := range p.Contradicting {
				against.WriteString(o.Event)
			}
			if p.Status != c.status || p.Basis.Event != c.basis || p.Settled != c.settled || against.String() != c.contradicting {
				t.Fatalf("%s: %q from %q, settled %v, contradicting %q", c.name, p.Status, p.Basis.Event, p.Settled, against.String())
			}
		}
	}
	// Within a second nobody can tell what happened last: then the order of arrival counts.
	first, second := at("a", "read", 1), at("b", "read", 1)
	first.At, second.Received = first.At.Add(200*time.Millisecond), second.Received.Add(-time.Minute)
	if p := project([]reconcile.Observation{first, second}); p.Basis.Event != "b" {
		t.Errorf("within a second: basis %q", p.Basis.Event)
	}
}

func TestGroups(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	in := func(event, participant, status string) reconcile.Observation {
		return reconcile.Observation{Ref: reconcile.Ref{Event: event}, Participant: participant, Status: status, Said: at, At: at, Received: at}
	}
	project := reconcile.MostInformative(reconcile.WhatsAppStatuses()...)
	p := project([]reconcile.Observation{in("0", "", "sent"), in("1", "bob", "failed"), in("2", "ann", "read"), in("3", "ann", "delivered")})
	if p.Status != "read" || p.Settled || len(p.Contradicting) != 0 || len(p.Participants) != 2 {
		t.Fatalf("one read and one failed: %+v", p)
	}
	if ann, bob := p.Participants[0], p.Participants[1]; ann.ID != "ann" || ann.Status != "read" || !ann.Settled || bob.Status != "failed" || bob.Settled {
		t.Fatalf("participants %+v", p.Participants)
	}
	p = project([]reconcile.Observation{in("0", "", "sent"), in("1", "bob", "delivered"), in("2", "ann", "read")})
	if !p.Settled {
		t.Fatalf("both have it: %+v", p)
	}
	p = project([]reconcile.Observation{in("1", "bob", "delivered"), in("2", "bob", "failed"), in("3", "ann", "read")})
	if p.Settled || len(p.Contradicting) != 1 || p.Contradicting[0].Event != "2" {
		t.Fatalf("contradicted in a group: %+v", p)
	}
}

// A projection of the user's own takes the place of ours.
func TestAnotherProjection(t *testing.T) {
	tl := newTimeline(t, &reconcile.TimelineOptions{Project: func(os []reconcile.Observation) reconcile.Projected {
		return reconcile.Projected{Status: "seen " + os[0].Status, Settled: true}
	}})
	if _, err := tl.Append(t.Context(), said("e", "sent", time.Now())); err != nil {
		t.Fatal(err)
	}
	if p, err := tl.Project(t.Context(), reconcile.Ref{Event: "e"}); err != nil || p.Status != "seen sent" || !p.Settled {
		t.Fatalf("%+v, %v", p, err)
	}
}

func TestTimelineSweep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := reconcile.NewTimelineMemory()
		tl, err := reconcile.NewTimeline(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		p := reconcile.TimelineParams{Kind: "default", Retention: 90 * 24 * time.Hour}
		old := said("old", "sent", time.Now())
		old.Own = "order"
		if _, err := tl.Append(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * 24 * time.Hour)
		young := said("young", "sent", time.Now())
		young.Message = "m2"
		if _, err := tl.Append(t.Context(), young); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Sweep(t.Context(), p, 100); n != 0 || err != nil {
			t.Fatalf("swept %d, %v", n, err)
		}
		time.Sleep(50 * 24 * time.Hour)
		if n, err := s.Sweep(t.Context(), p, 100); n != 1 || err != nil {
			t.Fatalf("swept %d, %v", n, err)
		}
		for ref, left := range map[reconcile.Ref]int{{Event: "old"}: 0, {Own: "order"}: 0, {Message: "m"}: 0, {Event: "young"}: 1} {
			if h, err := tl.Read(t.Context(), ref); err != nil || len(h.Observations) != left {
				t.Errorf("%+v has %d, %v", ref, len(h.Observations), err)
			}
		}
	})
}

func TestProjectionsDoNotChangeWhatTheyGet(t *testing.T) {
	os := []reconcile.Observation{said("b", "sent", time.Now()), said("a", "read", time.Now())}
	before := append([]reconcile.Observation(nil), os...)
	reconcile.MostInformative(reconcile.WhatsAppStatuses()...)(os)
	if !reflect.DeepEqual(os, before) {
		t.Error("the observations were changed")
	}
}

func TestTimelineForget(t *testing.T) {
	store := reconcile.NewTimelineMemory()
	var asked []reconcile.Action
	var refuse error
	tl, err := reconcile.NewTimeline(store, &reconcile.TimelineOptions{Authorize: func(_ context.Context, a reconcile.Action) (string, error) {
		asked = append(asked, a)
		return "officer", refuse
	}})
	if err != nil {
		t.Fatal(err)
	}
	view := tl.With(store)
	if _, err := view.Append(t.Context(), said("e1", "sent", time.Now()), said("e2", "delivered", time.Now())); err != nil {
		t.Fatal(err)
	}
	if s := tl.Stats(); s.Appended != 2 {
		t.Fatalf("a view's counts are its own: %+v", s)
	}
	refuse = errors.New("not you")
	if n, err := tl.Forget(t.Context(), reconcile.Ref{Event: "e1"}); n != 0 || !errors.Is(err, reconcile.ErrUnauthorized) || !errors.Is(err, refuse) {
		t.Fatalf("forgot %d, %v", n, err)
	}
	if n, err := newTimeline(t, nil).Forget(t.Context(), reconcile.Ref{Event: "e1"}); n != 0 || !errors.Is(err, reconcile.ErrUnauthorized) {
		t.Fatalf("without Authorize: forgot %d, %v", n, err)
	}
	if h, err := tl.Read(t.Context(), reconcile.Ref{Message: "m"}); len(h.Observations) != 2 || err != nil {
		t.Fatalf("who was refused has left %+v, %v", h, err)
	}
	refuse = nil
	if n, err := view.Forget(t.Context(), reconcile.Ref{Event: "e1"}); n != 2 || err != nil {
		t.Fatalf("forgot %d, %v", n, err)
	}
	if want := (reconcile.Action{Name: "forget", Kind: "default", Ref: reconcile.Ref{Event: "e1"}}); len(asked) != 2 || asked[0] != want || asked[1] != want {
		t.Errorf("asked for %+v", asked)
	}
	if h, err := tl.Read(t.Context(), reconcile.Ref{Message: "m"}); len(h.Observations) != 0 || err != nil {
		t.Fatalf("left %+v, %v", h, err)
	}
	cannot, err := reconcile.NewTimeline(struct{ reconcile.TimelineStore }{store}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err1 := cannot.Forget(t.Context(), reconcile.Ref{Message: "m"})
	_, err2 := tl.Forget(t.Context(), reconcile.Ref{})
	_, err3 := tl.Forget(t.Context(), reconcile.Ref{Message: "+4915100000000"})
	_, err4 := tl.With(nil).Append(t.Context(), said("e1", "sent", time.Now()))
	_, err5 := tl.With(nil).Read(t.Context(), reconcile.Ref{Message: "m"})
	for i, err := range []error{err1, err2, err3, err4, err5} {
		if !errors.Is(err, reconcile.ErrInvalid) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// An Own ID that very many messages share: what is not read cannot be settled.
func TestAHistoryThatIsTooLongDoesNotSettle(t *testing.T) {
	tl := newTimeline(t, nil)
	os := make([]reconcile.Observation, reconcile.MaxHistory+1)
	for i := range os {
		os[i] = reconcile.Observation{Ref: reconcile.Ref{Message: fmt.Sprint("m", i), Own: "own"}, Status: "delivered", Said: time.Now()}
	}
	if _, err := tl.Append(t.Context(), os[:reconcile.MaxHistory]...); err != nil {
		t.Fatal(err)
	}
	if p, err := tl.Project(t.Context(), reconcile.Ref{Own: "own"}); err != nil || !p.Settled {
		t.Fatalf("settled %t, %v", p.Settled, err)
	}
	if _, err := tl.Append(t.Context(), os[reconcile.MaxHistory]); err != nil {
		t.Fatal(err)
	}
	h, err := tl.Read(t.Context(), reconcile.Ref{Own: "own"})
	if err != nil || !h.More || len(h.Observations) != reconcile.MaxHistory {
		t.Fatalf("%d observations, more %t, %v", len(h.Observations), h.More, err)
	}
	if p, err := tl.Project(t.Context(), reconcile.Ref{Own: "own"}); err != nil || p.Settled || p.Status != "delivered" {
		t.Fatalf("%s, settled %t, %v", p.Status, p.Settled, err)
	}
}
