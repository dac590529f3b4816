package watchdogtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/backpressure/watchdog"
)

// A flaw is a way to get a store wrong, and the subtest that must notice.
type flaw struct {
	name    string
	noticed string
	store   func() watchdog.Store
}

// An alteration changes what goes into a Memory and what comes out of it. A nil
// function changes nothing.
type alteration struct {
	memory *watchdog.Memory
	mu     sync.Mutex
	ctx    func(context.Context) context.Context
	scope  func(string) string
	params func(*watchdog.Params)
	beat   func(scope string, b *watchdog.Beat)
	ack    func(b watchdog.Beat, a *watchdog.Ack)
	page   func(*watchdog.Page, string, int)
	action func(scope string, a *watchdog.Action)
	result func(scope string, a watchdog.Action, o *watchdog.Outcome)
	acts   func([]watchdog.Outcome)
}

func altered(change func(*alteration)) func() watchdog.Store {
	return func() watchdog.Store {
		a := &alteration{memory: watchdog.NewMemory()}
		change(a)
		return a
	}
}

func (s *alteration) Beat(ctx context.Context, p watchdog.Params, beats []watchdog.Beat) ([]watchdog.Ack, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx != nil {
		ctx = s.ctx(ctx)
	}
	if s.scope != nil {
		p.Scope = s.scope(p.Scope)
	}
	if s.params != nil {
		s.params(&p)
	}
	acks := []watchdog.Ack{}
	for _, b := range beats {
		sent := b
		if s.beat != nil {
			s.beat(p.Scope, &b)
		}
		one, err := s.memory.Beat(ctx, p, []watchdog.Beat{b})
		if err != nil {
			return nil, err
		}
		if s.ack != nil {
			s.ack(sent, &one[0])
		}
		acks = append(acks, one[0])
	}
	return acks, ctx.Err()
}

func (s *alteration) List(ctx context.Context, scope, after string, limit int) (watchdog.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx != nil {
		ctx = s.ctx(ctx)
	}
	if s.scope != nil {
		scope = s.scope(scope)
	}
	page, err := s.memory.List(ctx, scope, "", 1<<30)
	if s.page == nil || err != nil {
		return s.memory.List(ctx, scope, after, limit)
	}
	s.page(&page, after, limit)
	return page, nil
}

// paged is what List does with all records.
func paged(p *watchdog.Page, after string, limit int) {
	p.Records = slices.DeleteFunc(p.Records, func(e watchdog.Entry) bool { return e.Name <= after })
	p.Records = p.Records[:min(limit, len(p.Records))]
}

func (s *alteration) Act(ctx context.Context, scope string, actions []watchdog.Action) ([]watchdog.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx != nil {
		ctx = s.ctx(ctx)
	}
	if s.scope != nil {
		scope = s.scope(scope)
	}
	outcomes := []watchdog.Outcome{}
	for _, a := range actions {
		sent := a
		if s.action != nil {
			s.action(scope, &a)
		}
		one, err := s.memory.Act(ctx, scope, []watchdog.Action{a})
		if err != nil {
			return nil, err
		}
		if s.result != nil {
			s.result(scope, sent, &one[0])
		}
		outcomes = append(outcomes, one[0])
	}
	if s.acts != nil {
		s.acts(outcomes)
	}
	return outcomes, ctx.Err()
}

// record returns what the memory has of a worker.
func (s *alteration) record(scope, name string) watchdog.Record {
	page, _ := s.memory.List(context.Background(), scope, "", 1<<30)
	for _, e := range page.Records {
		if e.Name == name {
			return e.Record
		}
	}
	return watchdog.Record{}
}

func (s *alteration) do(scope string, a watchdog.Action) {
	_, _ = s.memory.Act(context.Background(), scope, []watchdog.Action{a})
}

// each changes every record that is listed.
func each(change func(*watchdog.Record)) func(*alteration) {
	return func(s *alteration) {
		s.page = func(p *watchdog.Page, after string, limit int) {
			paged(p, after, limit)
			for i := range p.Records {
				change(&p.Records[i].Record)
			}
		}
	}
}

var flaws = []flaw{
	{"every beat counts", "Once/RepeatedBeatChangesNothing", altered(func(s *alteration) {
		s.beat = func(scope string, b *watchdog.Beat) { b.Seq = s.record(scope, b.Name).Seq + 1 }
	})},
	{"a late beat counts", "Once/LateBeatChangesNothing", altered(func(s *alteration) {
		s.beat = func(scope string, b *watchdog.Beat) { b.Seq = max(b.Seq, s.record(scope, b.Name).Seq+1) }
	})},
	{"a beat sent again is refused", "Twice/BeatsSayWhatTheWorkerSays", altered(func(s *alteration) {
		sent := map[[16]byte]uint64{}
		s.ack = func(b watchdog.Beat, a *watchdog.Ack) {
			if sent[b.Nonce] >= b.Seq {
				*a = watchdog.Ack{Err: watchdog.ErrFenced}
			}
			sent[b.Nonce] = max(sent[b.Nonce], b.Seq)
		}
	})},
	{"every beat joins", "Once/UnknownWorkerIsGone", altered(func(s *alteration) {
		s.beat = func(_ string, b *watchdog.Beat) { b.Join = true }
	})},
	{"no bound", "Once/FullScopeRefusesNewWorkers", altered(func(s *alteration) {
		s.params = func(p *watchdog.Params) { p.Most = 1 << 30 }
	})},
	{"a full scope refuses new instances", "Once/FullScopeRefusesNewWorkers", altered(func(s *alteration) {
		s.ack = func(b watchdog.Beat, a *watchdog.Ack) {
			if b.Name == "b" && b.Join && a.Err == nil && b.Seq == 1 {
				if s.params == nil { // the first one
					s.params = func(*watchdog.Params) {}
					return
				}
				*a = watchdog.Ack{Err: watchdog.ErrFull}
			}
		}
	})},
	{"the older instance is answered as if it were the younger", "Once/OldInstanceIsFenced", altered(func(s *alteration) {
		s.ack = func(_ watchdog.Beat, a *watchdog.Ack) {
			if errors.Is(a.Err, watchdog.ErrFenced) {
				*a = watchdog.Ack{Token: 1}
			}
		}
	})},
	{"instances share a nonce", "Once/OldInstanceIsFenced", altered(func(s *alteration) {
		s.beat = func(_ string, b *watchdog.Beat) { b.Nonce = [16]byte{1} }
	})},
	{"past instances are forgotten", "Once/LateJoinOfAnOldInstance", altered(func(s *alteration) {
		s.beat = func(_ string, b *watchdog.Beat) {
			if b.Join {
				b.Nonce = newNonce()
			}
		}
	})},
	{"tokens do not rise", "Once/NewInstanceTakesTheName", altered(each(func(r *watchdog.Record) { r.Token = 7 }))},
	{"tokens begin at one", "Once/JoinMakesARecord", altered(func(s *alteration) {
		first := uint64(0)
		s.ack = func(_ watchdog.Beat, a *watchdog.Ack) {
			if first == 0 {
				first = a.Token - 1
			}
			a.Token -= first
		}
		each(func(r *watchdog.Record) { r.Token -= first })(s)
	})},
	{"a new instance is a clean slate", "Once/JoinKeepsWhatWasDone", altered(func(s *alteration) {
		s.beat = func(scope string, b *watchdog.Beat) {
			if b.Join && b.Seq == 1 {
				s.do(scope, watchdog.Action{Kind: watchdog.KindResume, Name: b.Name})
			}
		}
	})},
	{"goodbye is not kept", "Once/LeavingIsListed", altered(func(s *alteration) {
		s.beat = func(_ string, b *watchdog.Beat) { b.Leave = false }
	})},
	{"a worker that left comes back", "Once/BeatAfterLeavingChangesNothing", altered(func(s *alteration) {
		s.beat = func(scope string, b *watchdog.Beat) {
			if s.record(scope, b.Name).Left {
				s.do(scope, watchdog.Action{Kind: watchdog.KindForget, Name: b.Name})
				b.Join = true
			}
		}
	})},
	{"details are cut", "Once/AllNamesAndDetails", altered(func(s *alteration) {
		s.beat = func(_ string, b *watchdog.Beat) { b.Detail = b.Detail[:min(len(b.Detail), 100)] }
	})},
	{"numbers pass through a float", "Once/LargestNumbers", altered(func(s *alteration) {
		s.beat = func(_ string, b *watchdog.Beat) {
			b.Position, b.Handler = uint64(float64(b.Position)), uint64(float64(b.Handler))
		}
	})},
	{"idle time counts", "Once/StalledNeedsWork", altered(func(s *alteration) {
		s.beat = func(_ string, b *watchdog.Beat) { b.Busy = true }
	})},
	{"standing still counts from the first beat", "Once/StalledIsTheTimeAtOnePosition", altered(each(func(r *watchdog.Record) { r.Stalled = r.BeatAt.Sub(r.JoinedAt) }))},
	{"a handler counts as quiet", "Once/QuietNeedsALoopAndNoHandler", altered(func(s *alteration) {
		s.beat = func(_ string, b *watchdog.Beat) { b.Handler = 0 }
	})},
	{"no turns count as quiet", "Once/QuietNeedsALoopAndNoHandler", altered(func(s *alteration) {
		s.beat = func(_ string, b *watchdog.Beat) { b.Turns++ }
	})},
	{"any handler counts as the same", "Once/RunningIsTheTimeOfOneHandler", altered(func(s *alteration) {
		s.beat = func(_ string, b *watchdog.Beat) { b.Handler = min(b.Handler, 1) }
	})},
	{"all time between beats counts", "Once/TheTimeBetweenBeatsIsBounded", altered(each(func(r *watchdog.Record) { r.Running = r.BeatAt.Sub(r.JoinedAt) }))},
	{"every beat is a new state", "Once/StateAtIsWhenItBecameSo", altered(each(func(r *watchdog.Record) { r.StateAt = r.BeatAt }))},
	{"the list is not sorted", "Once/ListIsInTheOrderOfBytes", altered(func(s *alteration) {
		s.page = func(p *watchdog.Page, after string, limit int) {
			paged(p, after, limit)
			slices.Reverse(p.Records)
		}
	})},
	{"pages have no bound", "Once/ListInPages", altered(func(s *alteration) {
		s.page = func(p *watchdog.Page, after string, _ int) { paged(p, after, 1<<30) }
	})},
	{"pages overlap", "Once/ListInPages", altered(func(s *alteration) {
		s.page = func(p *watchdog.Page, after string, limit int) {
			p.Records = slices.DeleteFunc(p.Records, func(e watchdog.Entry) bool { return e.Name < after })
			p.Records = p.Records[:min(limit, len(p.Records))]
		}
	})},
	{"scopes run together", "Once/ScopesAreApart", altered(func(s *alteration) {
		s.scope = func(string) string { return "one" }
	})},
	{"the time is a caller's and stands still", "Once/NowIsTheStoresTime", altered(func(s *alteration) {
		start := time.Now()
		s.page = func(p *watchdog.Page, after string, limit int) { paged(p, after, limit); p.Now = start }
	})},
	{"a take is granted to everybody", "Once/OneOfManyTakes", altered(func(s *alteration) {
		s.result = func(_ string, _ watchdog.Action, o *watchdog.Outcome) {
			if errors.Is(o.Err, watchdog.ErrBusy) {
				*o = watchdog.Outcome{Claim: 9, Attempt: 1}
			}
		}
	})},
	{"everybody gives up", "Once/OneOfManyGivesUp", altered(func(s *alteration) {
		s.result = func(_ string, _ watchdog.Action, o *watchdog.Outcome) {
			o.First = errors.Is(o.Err, watchdog.ErrGivenUp)
		}
	})},
	{"nonce of a take ignored", "Once/RepeatedTakeGetsTheSameAnswer", altered(func(s *alteration) {
		s.action = func(_ string, a *watchdog.Action) { a.Nonce = newNonce() }
	})},
	{"nonce of a take ignored, all sent twice", "Twice/TakeGrantsOneAttempt", altered(func(s *alteration) {
		s.action = func(_ string, a *watchdog.Action) { a.Nonce = newNonce() }
	})},
	{"no wait between attempts", "Once/NotBeforeItIsTime", altered(func(s *alteration) {
		s.action = func(_ string, a *watchdog.Action) {
			if a.Kind == watchdog.KindTake || a.Kind == watchdog.KindDone {
				a.Wait = time.Microsecond
			}
		}
		s.result = func(string, watchdog.Action, *watchdog.Outcome) { time.Sleep(time.Millisecond) }
	})},
	{"a heartbeat meanwhile is not noticed", "Once/TakeNeedsTheHeartbeatSeen", altered(func(s *alteration) {
		s.action = func(_ string, a *watchdog.Action) {
			if a.Kind == watchdog.KindTake {
				a.Seq = 0
			}
		}
	})},
	{"an instance meanwhile is not noticed", "Once/TakeNeedsTheInstanceSeen", altered(func(s *alteration) {
		s.action = func(scope string, a *watchdog.Action) {
			if a.Kind == watchdog.KindTake {
				a.Token = s.record(scope, a.Name).Token
			}
		}
	})},
	{"progress meanwhile is not noticed", "Once/TakeNeedsTheTimeSeen", altered(func(s *alteration) {
		s.action = func(_ string, a *watchdog.Action) { a.Stalled = 0 }
	})},
	{"who has left is restarted", "Once/NoTakeOfWhoHasLeft", altered(func(s *alteration) {
		s.result = func(scope string, a watchdog.Action, o *watchdog.Outcome) {
			if s.record(scope, a.Name).Left {
				*o = watchdog.Outcome{Claim: 1, Attempt: 1}
			}
		}
	})},
	{"attempts have no cap", "Once/AfterTheLastAttemptItIsGivenUp", altered(func(s *alteration) {
		s.action = func(_ string, a *watchdog.Action) { a.Most = 1000 }
	})},
	{"who is given up is not noted to be bad still", "Once/AfterTheLastAttemptItIsGivenUp", altered(func(s *alteration) {
		since := map[string]time.Time{}
		s.page = func(p *watchdog.Page, after string, limit int) {
			paged(p, after, limit)
			for i := range p.Records {
				r := &p.Records[i]
				if r.GivenUp {
					if since[r.Name].IsZero() {
						since[r.Name] = r.ActedAt
					}
					r.ActedAt = since[r.Name]
				}
			}
		}
	})},
	{"the end of an old attempt counts", "Once/DoneOfAnOldAttempt", altered(func(s *alteration) {
		s.action = func(scope string, a *watchdog.Action) {
			if a.Kind == watchdog.KindDone {
				a.Claim = s.record(scope, a.Name).Claim
			}
		}
	})},
	{"the end of an attempt counts again", "Once/RepeatedDoneChangesNothing", altered(each(func(r *watchdog.Record) {
		if r.Attempts > 0 {
			r.NextAt = time.Now().Add(time.Hour)
		}
	}))},
	{"well at once", "Once/ClearNeedsTimeAndTheClaim", altered(func(s *alteration) {
		s.action = func(_ string, a *watchdog.Action) {
			if a.Kind == watchdog.KindClear {
				a.Wait = 0
			}
		}
	})},
	{"well whatever was done since", "Once/ClearNeedsTimeAndTheClaim", altered(func(s *alteration) {
		s.action = func(scope string, a *watchdog.Action) {
			if a.Kind == watchdog.KindClear {
				a.Claim = s.record(scope, a.Name).Claim
			}
		}
	})},
	{"given up for ever", "Once/ClearEndsGivenUp", altered(func(s *alteration) {
		s.action = func(scope string, a *watchdog.Action) {
			if a.Kind == watchdog.KindClear && s.record(scope, a.Name).GivenUp {
				a.Claim = 0
			}
		}
	})},
	{"resume does nothing", "Once/ResumeAtOnce", altered(func(s *alteration) {
		s.action = func(_ string, a *watchdog.Action) {
			if a.Kind == watchdog.KindResume {
				a.Kind, a.Claim, a.Wait = watchdog.KindClear, 0, time.Hour
			}
		}
		s.result = func(_ string, a watchdog.Action, o *watchdog.Outcome) {
			if a.Kind == watchdog.KindResume {
				o.Err = nil
			}
		}
	})},
	{"forgotten whatever was seen", "Once/ForgetWhatWasSeen", altered(func(s *alteration) {
		s.action = func(_ string, a *watchdog.Action) {
			if a.Kind == watchdog.KindForget {
				a.Seq = 0
			}
		}
	})},
	{"answers in another order", "Once/ActionsInOrder", altered(func(s *alteration) { s.acts = slices.Reverse[[]watchdog.Outcome] })},
	{"goes on after the caller has gone", "Once/CancelledContext", altered(func(s *alteration) { s.ctx = context.WithoutCancel })},
	{"deadline ignored", "Once/ExpiredContext", altered(func(s *alteration) { s.ctx = context.WithoutCancel })},
	{"a rule wrong somewhere", "Once/RandomHistoryMatchesTheReference", altered(func(s *alteration) {
		s.beat = func(_ string, b *watchdog.Beat) { b.Busy = b.Busy && b.State != watchdog.Parked }
	})},
}
