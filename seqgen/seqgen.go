// Package seqgen hands out the numbers 1, 2, 3 and so on of a key, and never the
// same number twice in an epoch of the key, whatever restarts.
//
// A [Generator] assigns numbers in one of three modes. A key is used in one mode
// per epoch: its first number decides, and another mode gets [ErrMode] until
// [Generator.Bump] opens the next epoch.
//
//	mode     what it promises beyond that         what it costs            who may use a key
//	Gapless  no hole; the order of the commits    one transaction per key  any process
//	         is the order of the numbers          at a time
//	Single   a number is above all that were      one durable step of the  any process
//	         returned before it was asked for     store, shared by
//	                                              concurrent calls
//	Block    numbers of one owner rise; a hole    nothing on the way: a    one process at a
//	         only when an owner dies or is        durable step per block,  time, which owns
//	         replaced                             ahead of the need        the key
//
// Gapless is [Generator.NextTx] on a view that is bound to the caller's
// transaction ([Generator.With]): the number commits with what it numbers, and a
// rollback returns it. The key is locked from NextTx to the commit, so it gives at
// most 1/d numbers a second if a transaction lasts d after it: a few hundred where
// a commit is forced to the disk. Take several keys in one order, or transactions
// deadlock. Call NextTx as late in the transaction as you can.
//
// Single is [Generator.Next] with the default options. A number is lost when its
// process dies between the store's step and the use of the number: nobody knows of
// that hole. One whose caller gave up is recorded as void, and so is one whose
// answer never came, if the store answers before other processes have made 32 more
// reservations for the same key: it need not remember more ([LogSize]).
//
// Block is [Generator.Next] with Options.Mode set to Block. The first Next of a key
// takes it, with a fencing token; from then on whoever owned it before is refused
// every further block with [ErrStale], and may only hand out what it had reserved.
// So numbers of two owners never are the same, but the old owner may hand out 7
// after the new one handed out 65. A generator does not take a key back by itself,
// or two processes would fight for it: [Generator.Open] does.
//
// # What is not guaranteed
//
// The numbers are as durable as the store; each store's package says how durable
// that is. When a store goes back to an older copy of itself (a failover of Redis,
// a restored dump), numbers could come a second time. A generator that knows a
// higher number refuses with [ErrRolledBack]: its own, or one that it was told of
// ([Generator.Observe]), or, with Options.Witness, one that any generator with the
// same witness ever reserved. Without these it cannot notice, and does not. With a
// witness one moment is left: the numbers that another process reserves after this
// one has looked at the witness come again if the store goes back behind them
// before this one's reservation arrives there.
//
// Holes are not gaps in the messages: see [Generator.Voids] and the section on
// voids. After a hole that no void explains, nobody can say whether a message with
// that number exists.
//
// # Voids
//
// A [Void] is a range of numbers that has no message, or may have none. A certain
// void can be crossed at once. An orphaned one is the rest of an owner's block at
// the moment the key was taken from it: some of the numbers may be on their way,
// so cross it only after a while without an arrival inside it. [Generator.Close]
// returns the rest of all blocks: if nobody has reserved after it, the next owner
// begins right there, and there is no void at all; otherwise the orphaned void
// becomes certain. [Generator.Voids] lists them, for whoever puts messages in
// order.
//
// # Epochs
//
// An epoch is one incarnation of a sequence. [Generator.Bump] opens the next,
// which begins at 1: for a lane that starts afresh, for another mode, after
// [ErrRolledBack], or when an epoch is exhausted at 2⁶³-1. Positions are compared
// by epoch first.
//
// # Choosing a store
//
// [NewMemory] is for tests. The packages boltseqgen, redisseqgen and pgseqgen keep
// sequences in a file, in Redis and in PostgreSQL; the first and the last have
// transactions for Gapless. A store of your own implements [Store] and passes
// seqgentest.
//
// # Personal data
//
// Errors and logs name a key by the first 12 digits of its SHA-256. Stores keep
// keys in clear and for ever, since a forgotten key would begin again at 1: make
// keys from something that is not personal, or hash them.
package seqgen

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/internal/merge"
)

// A Generator hands out numbers of any number of keys. Make one for each kind of
// sequence; many can share a store. Its methods are safe for concurrent use. Close
// it, or the rest of its blocks will be orphaned.
//
// A call of the store is given up after 10 seconds, if the store can be
// interrupted, and calls that arrived meanwhile wait for it: give contexts a
// deadline.
type Generator struct {
	*core
	store Store
	bound bool // to the caller's transaction
}

// Options set up a [Generator]. The zero value of each field is a working default.
type Options struct {
	// Scope separates this kind of sequence from others in the same store:
	// [A-Za-z0-9._-]{1,64}. Empty means "default".
	Scope string

	// Mode is how Next assigns numbers. Zero means Single. With Gapless, Next is
	// refused: there is only NextTx, which every generator has.
	Mode Mode

	// Block is the smallest number of numbers in one reservation of mode Block, and
	// so about what an owner that dies leaves orphaned of a key that is used little;
	// a key that is used much has up to MaxBlock, and a reservation ahead. Zero means
	// 64.
	Block int

	// MaxBlock is the largest: a block grows while it is used up within a few times
	// of what a reservation takes, and shrinks again. Zero means 65,536, which is
	// also the most.
	MaxBlock int

	// MaxKeys is how many keys the generator keeps in memory, at some 300 bytes
	// each. Beyond it, a generator in mode Block answers ErrFull until some are
	// closed ([Generator.CloseIdle]); in the other modes one of the others is
	// forgotten, with the highest number that the generator had seen of it. Zero
	// means 100,000.
	MaxKeys int

	// Retention is how long a void can be listed. Zero means 30 days.
	Retention time.Duration

	// SettleTimeout bounds a return, a bump and a closing, which are tried again
	// until then. Zero means 5 seconds.
	SettleTimeout time.Duration

	// Witness is a second store, in another database, that knows how far the first
	// has been. It is looked at before each reservation, and told of the numbers
	// before they are handed out: a store that has gone back behind numbers of any
	// process with this witness is ErrRolledBack. When it does not answer, no number
	// is handed out. A witness may serve one process or all. Nil: there is none.
	//
	// It costs two steps of the witness for each reservation, one after the other with
	// the reservation: a call of Next in mode Single waits for three round trips
	// instead of one, which concurrent calls share; in mode Block nothing is added
	// while there are numbers left. NextTx and Bump look at it once, and NextTx does
	// so before it locks the key. Numbers of NextTx reach it by Observe only.
	Witness Store

	// Logger receives what an operator should look at: a key that was lost, a store
	// that has gone back, numbers whose fate could not be recorded. Nil: nothing is
	// logged.
	Logger *slog.Logger

	// Hooks are called at the events they name. Nil: none are.
	Hooks *Hooks
}

// New returns a generator over a store. Nil options mean defaults. It fails with
// [ErrInvalid] on a nil store and on an option outside its range. It does no I/O
// and starts no goroutine.
func New(s Store, opts *Options) (*Generator, error) {
	if isNil(s) {
		return nil, invalid("nil store")
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &core{opts: o, main: s, keys: newTable(o.MaxKeys)}
	c.singles = merge.Merger[*Sequence, number]{Call: c.nextSingles, Orphan: c.orphaned}
	c.blocks = merge.Merger[Ask, Grant]{Call: c.reserveBlocks}
	return &Generator{core: c, store: s}, nil
}

// With returns a view of the generator on another store, which is bound to a
// transaction of the caller: store.Tx(tx). [Generator.NextTx] works on a view
// only. Bump, Look and Voids work within its transaction too; Next, Open and Key
// are refused. What a view did is undone when the transaction is rolled back, and
// the counters of Stats are not.
//
// Like the transaction, the view is for one goroutine. On a nil store, every call
// of the view fails with ErrInvalid.
func (g *Generator) With(s Store) *Generator {
	if isNil(s) {
		s = noStore{}
	}
	return &Generator{core: g.core, store: s, bound: true}
}

// core is what a generator and its views share.
type core struct {
	opts    Options
	main    Store
	counts  counts
	keys    *table
	singles merge.Merger[*Sequence, number]
	blocks  merge.Merger[Ask, Grant]
	later   later
	closed  atomic.Bool
}

func (c *core) params() Params {
	return Params{Scope: c.opts.Scope, Retention: c.opts.Retention}
}

func (c *core) warn(msg, key string, err error) {
	if c.opts.Logger != nil {
		c.opts.Logger.Warn("seqgen: "+msg, "scope", c.opts.Scope, "key", short(key), "error", err)
	}
}
