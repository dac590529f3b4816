package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/pawl-go/pawl/reconcile/lww"
)

// home is the region that some conversations must not leave; the other one is 2.
const home = 1

// staysHome is where their values must not go. Their keys say which they are.
func staysHome(_, to uint8, key string) bool {
	return to != home && strings.HasPrefix(key, "resident/")
}

// A simulation is two regions in one case.
type simulation struct {
	*world
	config
	scene   scene
	regions [2]*region
	keys    []string
	homes   []int // of each key
	limit   time.Duration

	made  map[write]made
	lost  map[write]bool // those that were reported as lost; true: to one that had not seen them
	row   row
	wrong []string // what the library got wrong
}

// A write is known by its key and stamp.
type write struct {
	key   string
	stamp lww.Stamp
}

// made is what is known of a write.
type made struct {
	saw     lww.Stamp // the other region's latest write to the key that had come
	deleted bool
}

type region struct {
	*lww.Map
	heard    map[string]lww.Stamp // of each key, the other's latest write that came
	counter  uint64               // see naive
	counters map[string]lww.Stamp
}

func newSimulation(c config, s scene) *simulation {
	x := &simulation{world: newWorld(c.seed), config: c, scene: s, made: map[write]made{}, lost: map[write]bool{}}
	for i := range x.regions {
		m, err := lww.New(uint8(i+1), &lww.Options{Regions: []uint8{1, 2}, Residency: staysHome})
		if err != nil {
			panic(err)
		}
		x.regions[i] = &region{Map: m, heard: map[string]lww.Stamp{}, counters: map[string]lww.Stamp{}}
	}
	for n := range c.keys {
		kind := "conversation"
		if n%5 == 0 {
			kind = "resident"
		}
		x.keys = append(x.keys, fmt.Sprintf("%s/%d", kind, n))
		x.homes = append(x.homes, x.random.IntN(2))
		if kind == "resident" {
			x.homes[n] = home - 1
		}
	}
	x.row = row{Case: s.name, Away: s.away, Delay: millis(s.delayOf(c)), Expected: s.expected(c)}
	return x
}

// play lets the case happen, until both have the same and a minute after the last write
// at most.
func (x *simulation) play() row {
	x.after(0, x.writes)
	for i := range x.regions {
		x.after(x.every*time.Duration(i)/2, func() { x.sends(i) })
	}
	x.run(x.length)
	x.row.SameAfter = -1
	x.limit = x.length + time.Minute
	for x.now < x.limit && len(x.events) > 0 {
		x.run(x.events[0].at)
		if a, b := x.regions[0], x.regions[1]; a.Vector().Equal(b.Vector()) {
			x.row.SameAfter = max(0, x.now-x.length).Seconds()
			break
		}
	}
	if x.row.SameAfter >= 0 {
		x.run(x.now + 2*x.scene.delayOf(x.config) + 2*x.every) // until each knows that the other has
	}
	x.judge()
	return x.row
}

// writes makes a write, and the next one after a random time.
func (x *simulation) writes() {
	if x.now > x.length {
		return
	}
	n := x.random.IntN(len(x.keys))
	at := x.homes[n]
	if x.random.Float64() < x.scene.away {
		at = 1 - at
	}
	r, key := x.regions[at], x.keys[n]
	var c lww.Change
	var err error
	if x.random.IntN(50) == 0 {
		c, err = r.Delete(key)
	} else {
		c, err = r.Set(key, []byte(body(key, x.now)))
	}
	if err != nil {
		x.bad("a write failed: %v", err)
	} else {
		x.row.Writes++
		x.made[write{key, c.Now.Stamp()}] = made{r.heard[key], c.Now.State() == lww.Deleted}
		x.takeLoss(c)
		x.naive(at, key)
	}
	x.after(time.Duration(x.random.ExpFloat64()/x.rate*1e9), x.writes)
}

// body is a value. That of a resident key can be told in what a region sends.
func body(key string, now time.Duration) string {
	mark := ""
	if strings.HasPrefix(key, "resident/") {
		mark = secret
	}
	return fmt.Sprintf("%sat %v: %s", mark, now, key)
}

const secret = "must not leave; "

// sends has a region send what the other is not known to have, and again after a while.
func (x *simulation) sends(from int) {
	x.after(x.every, func() { x.sends(from) })
	to := 1 - from
	r := x.regions[from]
	deltas, err := r.Delta(uint8(to+1), r.Acknowledged(uint8(to+1)), 0)
	if err != nil {
		x.bad("no delta: %v", err)
	}
	for _, d := range deltas {
		bytes, err := d.MarshalBinary()
		if err != nil {
			x.bad("no delta: %v", err)
		}
		x.row.Deltas++
		x.row.Bytes += len(bytes)
		if to+1 != home && strings.Contains(string(bytes), secret) {
			x.bad("a value has left its home at %v", x.now)
		}
		if x.scene.cut && x.now >= x.length/2 && x.now < x.length/2+x.partition {
			continue // lost
		}
		x.after(x.scene.delayOf(x.config), func() { x.receives(to, bytes) })
	}
}

// receives has a region merge what came, and forget tombstones.
func (x *simulation) receives(to int, bytes []byte) {
	var d lww.Delta
	if err := d.UnmarshalBinary(bytes); err != nil {
		x.bad("not readable: %v", err)
		return
	}
	r := x.regions[to]
	merged, err := r.Apply(d)
	if err != nil {
		x.bad("not merged: %v", err)
		return
	}
	if !merged.Advanced || merged.Rewound || merged.Diverged || !merged.Held.IsZero() {
		x.bad("a delta is not what it should be: %+v", merged)
	}
	for i, c := range merged.Changes {
		s := d.Entries[i].Register.Stamp()
		if s.Region != uint8(to+1) && s.Compare(r.heard[c.Key]) > 0 {
			r.heard[c.Key] = s
			x.naiveMerge(to, c.Key)
		}
		x.takeLoss(c)
	}
	x.row.Collected += r.Collect(1000)
}

// takeLoss notes the write that a change reports as lost, once, and checks what the
// change says of it.
func (x *simulation) takeLoss(c lww.Change) {
	l := write{c.Key, c.Lost.Stamp()}
	if l.stamp.IsZero() {
		return
	}
	if c.Outcome != lww.Collected {
		unseen := l.stamp.Region != c.Now.Stamp().Region && l.stamp.Compare(x.made[write{c.Key, c.Now.Stamp()}].saw) > 0
		if unseen != c.Conflict {
			x.bad("%v lost to %v, unseen: %v, conflict: %v", l.stamp, c.Now.Stamp(), unseen, c.Conflict)
		}
	}
	if c.Clash {
		x.bad("a clash at %v", l.stamp)
	}
	if c.Conflict && !x.lost[l] {
		x.row.Lost++
	}
	x.lost[l] = x.lost[l] || c.Conflict // it can be reported by both regions, and again
}

func (x *simulation) bad(format string, args ...any) {
	if len(x.wrong) < 10 {
		x.wrong = append(x.wrong, fmt.Sprintf(format, args...))
	}
}
