package pginbox

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-go/pawl/inbox"
)

func (s *Store) claim(ctx context.Context, a inbox.Ask) (inbox.Claimed, error) {
	sc := s.scout(a.Stream)
	look := sc.begin()
	var claimed inbox.Claimed
	var end ending
	var current *inbox.Claim
	w := newRow()
	open := func(key string) {
		if current == nil || current.Key != key {
			claimed.Claims = append(claimed.Claims, inbox.Claim{Stream: a.Stream, Key: key, Token: uint64(w.token), Left: micros(w.left)})
			current = &claimed.Claims[len(claimed.Claims)-1]
		}
	}
	err := s.alone().Call(ctx, func(rows pgx.Rows) error {
		switch whatIs(rows) {
		case rowEnd:
			return end.scan(rows)
		case rowKey:
			key, err := w.key(rows)
			open(key)
			return err
		}
		r, err := w.scan(rows, true)
		if err != nil {
			return err
		}
		open(r.Key)
		current.Records = append(current.Records, r)
		current.More = w.more != nil && *w.more
		return nil
	}, s.sql.claim, a.Stream, a.Nonce[:], a.Keys, a.Events, int64(a.Bytes), a.Lease.Microseconds(), look.floor, look.dueFloor, look.next, look.raise, look.was, look.run)
	if err != nil {
		return inbox.Claimed{}, err
	}
	sc.end(look, &end)
	claimed.Next = micros(end.next)
	return claimed, nil
}

// An ending is the last row of inbox_claim.
type ending struct {
	now, next, low, mark, oldest, newest int64
	front, run                           int64 // of the stream, and of the server, if the claim began at the front
	full                                 bool  // there may be more keys that are due
}

func (e *ending) scan(rows pgx.Rows) error {
	var what int16
	var next, low, newest, front, run *int64
	var full *bool
	dest := [rowColumns]any{&what, &e.now, &next, &full, &low, &e.mark, &e.oldest, &newest, &front, 15: &run}
	if err := rows.Scan(dest[:]...); err != nil {
		return err
	}
	for _, n := range []struct{ to, from *int64 }{{&e.next, next}, {&e.low, low}, {&e.newest, newest}, {&e.front, front}, {&e.run, run}} {
		if n.from != nil {
			*n.to = *n.from
		}
	}
	e.full = full != nil && *full
	return nil
}

// A scout remembers for a stream up to where there is nothing to be found any
// more, so that a claim does not read again what earlier ones have seen: see
// schema/0003_claim.sql. It is a memory and no more: a new one begins at the
// front of the stream, and now and then every scout does, for what was committed so
// late that the scout had passed it.
//
// The front is what the scouts of all processes have of it in the database. It goes
// past nothing that may be committed yet, however long that takes, so what a scout
// knows of it is kept apart from its floor.
type scout struct {
	every, stale time.Duration // rescanEvery and staleAfter

	mu        sync.Mutex
	floor     int64
	dueFloor  int64
	front     int64 // of the stream, as far as is sure
	was       int64 // the front in the database, from where this one was read on
	run       int64 // of the server at that time
	mark      mark
	sure      mark      // the last one whose transactions had all ended
	rescan    time.Time // when to begin at the front again
	lookAgain time.Time // when to look for the time of the next key again
}

// A mark is a number up to which all were given out when it was taken, by
// transactions below newest.
type mark struct {
	number, newest int64
	taken          time.Time
}

// A look is one claim of a scout.
type look struct {
	floor, dueFloor int64
	raise, was, run int64 // of the front
	next            bool
	started         time.Time
}

const (
	// rescanEvery is how often a claim begins at the front, at most. When that takes
	// long, it is done less often: a fiftieth of the time.
	rescanEvery = 5 * time.Second
	rescanShare = 50
	// staleAfter is when a mark counts although transactions that are older go on. What
	// they accepted is found by the next rescan.
	staleAfter = 3 * time.Second
	// dueLag is how long after its time a key may become visible as due before it is
	// left to the next rescan.
	dueLag = 500 * time.Millisecond
	// raiseAfter is how many numbers the front is behind when a claim takes it on.
	raiseAfter = 256
)

func (s *Store) scout(stream string) *scout {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := s.scouts[stream]
	if sc == nil {
		if len(s.scouts) >= maxScouts {
			clear(s.scouts)
		}
		sc = &scout{every: s.rescanEvery, stale: s.staleAfter}
		s.scouts[stream] = sc
	}
	return sc
}

const maxScouts = 1024

func (sc *scout) begin() look {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	now := time.Now()
	l := look{started: now, next: !now.Before(sc.lookAgain)}
	if now.Before(sc.rescan) {
		l.floor, l.dueFloor = sc.floor, sc.dueFloor
	} else {
		sc.rescan = now.Add(sc.every) // other claims need not do it, too
	}
	if sc.front >= sc.was+raiseAfter {
		l.raise, l.was, l.run = sc.front, sc.was, sc.run
		sc.was = sc.front
	}
	return l
}

func (sc *scout) end(l look, e *ending) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	now := time.Now()
	took := now.Sub(l.started)
	if l.next {
		sc.lookAgain = now.Add(rescanShare * took)
	}
	if l.floor == 0 {
		sc.rescan = now.Add(max(sc.every, rescanShare*took))
	}
	if e.low == 0 {
		return // the answer to an ask that was repeated
	}
	if e.now < sc.dueFloor { // the server's clock went back
		sc.dueFloor = 0
	}
	if !e.full {
		sc.dueFloor = max(sc.dueFloor, e.now-dueLag.Microseconds())
	}
	if e.run != 0 && e.run != sc.run { // numbers of transactions may have been given out twice
		sc.mark, sc.sure, sc.run, sc.floor = mark{}, mark{}, e.run, 0
	}
	safe := sc.floor
	if m := sc.mark; m.number > 0 {
		ended := e.oldest >= m.newest
		if ended {
			sc.sure = m
		}
		if ended || now.Sub(m.taken) > sc.stale {
			safe = max(safe, m.number+1)
			sc.mark = mark{}
		}
	}
	if sc.mark.number == 0 && e.newest > 0 {
		sc.mark = mark{number: e.mark, newest: e.newest, taken: now}
	}
	sure := int64(0) // to this claim, which may have been made before one that has ended already
	if sc.sure.number > 0 && e.oldest >= sc.sure.newest {
		sure = min(e.low, sc.sure.number+1)
	}
	if l.floor == 0 {
		sc.was, sc.front = e.front, max(e.front, sure)
		sc.floor = max(min(e.low, safe), sc.front)
		return
	}
	if l.floor <= sc.front {
		sc.front = max(sc.front, sure)
	}
	sc.floor = max(sc.floor, min(e.low, safe))
}
