package reconcile

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// TimelineMemory is a [TimelineStore] in the memory of this process, for tests and
// examples. It is safe for concurrent use.
type TimelineMemory struct {
	start  time.Time
	micros int64

	mu    sync.Mutex
	kinds map[string]*observed
}

// observed are the observations of one kind, by what they are about.
type observed struct {
	events   map[string]*Observation
	messages map[string]*subject
	owns     map[string]*subject            // those without a message
	linked   map[string]map[string]struct{} // the messages of an Own
}

type subject struct {
	list    []*Observation
	dropped int
	last    string // the event that was dropped last
	changed int64
}

// NewTimelineMemory returns an empty store.
func NewTimelineMemory() *TimelineMemory {
	now := time.Now()
	return &TimelineMemory{start: now, micros: now.UnixMicro(), kinds: map[string]*observed{}}
}

// Append implements [TimelineStore].
func (m *TimelineMemory) Append(ctx context.Context, p TimelineParams, os []Observation) ([]Appending, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	k := m.kind(p.Kind)
	answers := make([]Appending, len(os))
	for i := range os {
		answers[i] = k.append(now, p, os[i])
	}
	return answers, nil
}

func (k *observed) append(now int64, p TimelineParams, o Observation) Appending {
	if known := k.events[o.Event]; known != nil { // rule 1
		if known.Digest == o.Digest {
			return Repeated
		}
		return Differs
	}
	s := k.subject(o.Ref)
	if len(s.list) >= p.Most { // rule 2
		if s.last != o.Event {
			s.dropped++
			s.last = strings.Clone(o.Event)
		}
		return Overflow
	}
	o.Received, o.At = time.UnixMicro(now), o.Said // rule 3
	if o.Said.IsZero() || o.Said.After(o.Received.Add(p.Ahead)) || o.Said.Before(o.Received.Add(-p.Behind)) {
		o.At, o.Absurd = o.Received, true
	}
	s.list = append(s.list, &o)
	s.changed = now
	k.events[o.Event] = &o
	if o.Own != "" && o.Message != "" {
		if k.linked[o.Own] == nil {
			k.linked[o.Own] = map[string]struct{}{}
		}
		k.linked[o.Own][o.Message] = struct{}{}
	}
	return Appended
}

// Read implements [TimelineStore].
func (m *TimelineMemory) Read(ctx context.Context, p TimelineParams, ref Ref) (History, error) {
	if err := ctx.Err(); err != nil {
		return History{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	of, _ := m.kind(p.Kind).about(ref)
	var h History
	for _, s := range of {
		h.Dropped += s.dropped
		for _, o := range s.list {
			h.Observations = append(h.Observations, *o)
		}
	}
	slices.SortFunc(h.Observations, func(a, b Observation) int {
		return cmp.Or(a.Received.Compare(b.Received), strings.Compare(a.Event, b.Event))
	})
	if len(h.Observations) > MaxHistory {
		h.Observations, h.More = h.Observations[:MaxHistory:MaxHistory], true
	}
	return h, nil
}

// about returns the subjects that a reference joins.
func (k *observed) about(ref Ref) (of []*subject, refs []Ref) {
	if ref.Event != "" {
		o := k.events[ref.Event]
		if o == nil {
			return nil, nil
		}
		ref = o.Ref
	}
	add := func(s *subject, r Ref) {
		if s != nil {
			of, refs = append(of, s), append(refs, r)
		}
	}
	if ref.Message == "" {
		add(k.owns[ref.Own], Ref{Own: ref.Own})
		for message := range k.linked[ref.Own] {
			add(k.messages[message], Ref{Message: message})
		}
		return of, refs
	}
	s := k.messages[ref.Message]
	if s == nil {
		return nil, nil
	}
	add(s, Ref{Message: ref.Message})
	owns := map[string]bool{"": true}
	for _, o := range s.list {
		if !owns[o.Own] {
			owns[o.Own] = true
			add(k.owns[o.Own], Ref{Own: o.Own})
		}
	}
	return of, refs
}

// Forget implements [TimelineForgetter].
func (m *TimelineMemory) Forget(ctx context.Context, p TimelineParams, ref Ref) (n int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.kind(p.Kind)
	_, refs := k.about(ref)
	for _, r := range refs {
		n += k.drop(r)
	}
	return n, nil
}

// drop erases a subject, and returns how many observations that were.
func (k *observed) drop(r Ref) int {
	of, id := k.messages, r.Message
	if id == "" {
		of, id = k.owns, r.Own
	}
	s := of[id]
	delete(of, id)
	for _, o := range s.list {
		delete(k.events, o.Event)
		if delete(k.linked[o.Own], o.Message); len(k.linked[o.Own]) == 0 {
			delete(k.linked, o.Own)
		}
	}
	return len(s.list)
}

// Sweep looks at up to n messages of the kind p.Kind, beginning anywhere, forgets those that
// nothing was said of for p.Retention, and returns how many observations that were.
func (m *TimelineMemory) Sweep(ctx context.Context, p TimelineParams, n int) (removed int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k, before := m.kind(p.Kind), m.now()-p.Retention.Microseconds()
	for id, s := range k.messages {
		if n--; n < 0 {
			return removed, nil
		}
		if s.changed <= before {
			removed += k.drop(Ref{Message: id})
		}
	}
	for id, s := range k.owns {
		if n--; n < 0 {
			return removed, nil
		}
		if s.changed <= before {
			removed += k.drop(Ref{Own: id})
		}
	}
	return removed, nil
}

func (m *TimelineMemory) now() int64 { return m.micros + time.Since(m.start).Microseconds() }

func (m *TimelineMemory) kind(name string) *observed {
	k := m.kinds[name]
	if k == nil {
		k = &observed{events: map[string]*Observation{}, messages: map[string]*subject{}, owns: map[string]*subject{},
			linked: map[string]map[string]struct{}{}}
		m.kinds[strings.Clone(name)] = k
	}
	return k
}

func (k *observed) subject(ref Ref) *subject {
	of, id := k.messages, ref.Message
	if id == "" {
		of, id = k.owns, ref.Own
	}
	s := of[id]
	if s == nil {
		s = &subject{}
		of[strings.Clone(id)] = s
	}
	return s
}
