package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/dedup"
	"github.com/pawl-go/pawl/inbox"
)

// An effect is what the handler does for an event: it writes one record down. The
// records are numbered, not keyed by the event, so that a second effect of an event
// is seen.
type effect struct {
	ID, Key string
	Reply   bool     `json:",omitempty"` // the event is a message, which is answered
	At      position // with -order
	Way     way
}

// effectOn is the effect of an event on its arrival.
func effectOn(r inbox.Record) effect { return effect{ID: r.ID, Key: r.Key, Reply: due(r.Event)} }

func (e effect) String() string { return e.ID + "\t" + e.Key }

// A way is how an event came to its effect.
type way uint8

const (
	direct    way = iota // from the inbox, without -order
	inOrder              // when its turn came
	late                 // after its number had been skipped
	unordered            // on its arrival, while the order store did not answer
)

// storage is where the events, the effects and the sender's numbers are.
type storage interface {
	events() inbox.Store
	// number returns the positions of events: an event that has none gets the next
	// of its lane, one that has keeps it.
	number(ctx context.Context, events []inbox.Event) ([]position, error)
	// handle has the effect of an event, once. The reply to a message enters its lane with
	// it: in the same transaction or, where there is none, before it.
	handle(ctx context.Context, e effect) error
	answers() *replies
	// effects returns all effects, in the order in which they happened.
	effects() ([]effect, error)
	// ordered says whether the events can go through an order store; an empty name
	// means none. It returns a name that is this data's own, and whether the last run
	// used another store. Once the store knows all events, orderedBy notes it.
	ordered(by string) (name string, changed bool, err error)
	orderedBy(by string) error
	// place is where the gateway's log lies that goes with these data, if they are kept.
	place(ctx context.Context) (string, error)
	close() error
}

// open opens the storage. Claims are where effects are claimed; nil: in the storage
// itself.
func open(ctx context.Context, c config, claims dedup.Store) (storage, error) {
	switch c.store {
	case "bolt":
		return openBolt(c.data, claims)
	case "redis":
		return openRedis(ctx, c.redis)
	case "postgres":
		return openPostgres(ctx, c.postgres)
	}
	return openMemory(claims)
}

// sameOrder refuses data that was begun with -order where it is not in use, and the
// other way round: half of its events would have no number, or wait for ever.
func sameOrder(data string, t inbox.Totals, before, by string) error {
	begun := t != (inbox.Totals{})
	switch {
	case begun && before == "" && by != "":
		return fmt.Errorf("%s was begun without -order: its events have no numbers", data)
	case begun && before != "" && by == "":
		return fmt.Errorf("%s was begun with -order: some of its events may wait for their turn", data)
	}
	return nil
}

// guardOptions have a short lease: a claim whose answer was lost in an outage is
// held for no longer.
var guardOptions = &dedup.Options{Scope: "effects", Lease: 2 * time.Second}

// writeEffects writes one line per effect, sorted, and lets the file appear as a
// whole.
func writeEffects(path string, list []effect) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it is renamed
	list = slices.SortedFunc(slices.Values(list), func(a, b effect) int { return strings.Compare(a.String(), b.String()) })
	w := bufio.NewWriter(f)
	for _, e := range list {
		fmt.Fprintln(w, e)
	}
	if err := errors.Join(w.Flush(), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
