package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Rhythm is about what arrives per account and business phone number, told to
// [Checks.Arrived]: when in a window, an hour say, much less arrived than usual, that is a
// finding. Usual is the median of the same hour of the same weekday in the weeks before, so
// nights, weekends and one odd week raise nothing. The finding resolves itself when a window
// is as usual again.
//
// Nothing is found of a series with less history than MinWeeks, or of which less than
// MinVolume is usual at that hour: a quiet number says nothing. Nor is it found before a
// window has ended. What was counted in memory and not written down when a process died is
// missing; a window in which our own processes were down looks like a drop, and is one.
type Rhythm struct {
	// Name of the check. Empty means "volume".
	Name string
	// Window is what is compared: it divides one hour, and is at least 5 minutes. Zero means 1 hour.
	Window time.Duration
	// Weeks is how far the comparison goes back, 1 to 26. Zero means 5. MinWeeks is how many of
	// them a series has to be known for. Zero means 3.
	Weeks, MinWeeks int
	// MinVolume is the least usual volume of a window that is compared. Zero means 20.
	MinVolume int64
	// Drop is the share that has to be missing: 0.5 finds less than half. Zero means 0.5.
	Drop float64
	// Lag is how long after a window has ended it is compared, longer than CheckOptions.Flush.
	// Zero means 2 minutes.
	Lag time.Duration
	// Location is whose weekdays and hours the rhythm follows. Windows begin at full UTC hours
	// or parts of them, and are compared with those that began at the same wall-clock time
	// there; in the hour that summer time leaves out or repeats, with the nearest there is. Nil means UTC.
	Location *time.Location
	// Every is the time between two passes. Zero means 1 minute.
	Every time.Duration
}

// seriesPage is how many series are read at once.
const seriesPage = 500

// maxSeries is how many series, maxCells how many windows of them, are counted in memory at once.
const (
	maxSeries = 10_000
	maxCells  = 100_000
)

// A volumeCheck counts, and compares what all processes have counted.
type volumeCheck struct {
	Rhythm
	checks *Checks
	writer [16]byte

	mu     sync.Mutex
	cells  map[cellAt]*counted
	latest map[string]int // how many cells a series has

	compared time.Time         // the window that the last pass compared
	verdicts map[string]volume // of it
}

type cellAt struct {
	series string
	start  int64
}

// counted is what this process counted in a window, and how much of it is written.
type counted struct{ n, written int64 }

// volume is how a series stood in a window.
type volume struct {
	judged, low bool
	note        string
}

func newVolumeCheck(r Rhythm, c *Checks) (*volumeCheck, error) {
	r.Name = cmp.Or(r.Name, "volume")
	r.Window = cmp.Or(r.Window, time.Hour)
	r.Weeks = cmp.Or(r.Weeks, 5)
	r.MinWeeks = cmp.Or(r.MinWeeks, min(3, r.Weeks))
	r.MinVolume = cmp.Or(r.MinVolume, 20)
	r.Drop = cmp.Or(r.Drop, 0.5)
	r.Lag = cmp.Or(r.Lag, 2*time.Minute)
	r.Location = cmp.Or(r.Location, time.UTC)
	switch {
	case r.Window < 5*time.Minute || time.Hour%r.Window != 0:
		return nil, invalid("check %q with a window of %v, which is not a part of an hour of 5 minutes or more", r.Name, r.Window)
	case r.Weeks < 1 || r.Weeks > 26 || r.MinWeeks < 1 || r.MinWeeks > r.Weeks:
		return nil, invalid("check %q over %d weeks, at least %d: not 1 to 26", r.Name, r.Weeks, r.MinWeeks)
	case r.MinVolume < 1 || !(r.Drop > 0 && r.Drop <= 1):
		return nil, invalid("check %q with a drop of %v, not above 0 to 1, or a least volume of %d", r.Name, r.Drop, r.MinVolume)
	case r.Lag <= c.opts.Flush || r.Lag > r.Window:
		return nil, invalid("check %q after a lag of %v, not above %v, in which counts are written, to %v", r.Name, r.Lag, c.opts.Flush, r.Window)
	}
	return &volumeCheck{Rhythm: r, checks: c, writer: newNonce(), cells: map[cellAt]*counted{}, latest: map[string]int{}, verdicts: map[string]volume{}}, nil
}

// keep is for how long cells are kept: one week more than is compared.
func (v *volumeCheck) keep() time.Duration { return time.Duration(v.Weeks+1) * week }

const week = 7 * 24 * time.Hour

func (v *volumeCheck) check() Check {
	return Check{Name: v.Name, Every: v.Every, Recheck: v.Window + v.Lag, Find: v.find, Holds: v.holds}
}

// Arrived counts n messages or statuses that arrived for an account and one of its business
// phone numbers, in memory; Run and Once write it down. Count what was accepted for the
// first time, and a delivery that is repeated changes nothing. The window is that of this
// process's clock. At most 10,000 series are counted at once in a process, more are
// counted in CheckStats.Lost, and so are those whose names, at most MaxSubject bytes
// together, are not UTF-8 without NUL. It is cheap, and does no I/O.
func (c *Checks) Arrived(account, number string, n int) {
	if n <= 0 {
		return
	}
	if c.volume == nil || !c.volume.add(seriesName(account, number), int64(n), time.Now()) {
		c.counts.lost.Add(uint64(n))
	}
}

// seriesName and its inverse write account and number as one text.
func seriesName(account, number string) string {
	return url.QueryEscape(account) + " " + url.QueryEscape(number)
}

func seriesAccount(series string) string {
	account, _, _ := strings.Cut(series, " ")
	account, _ = url.QueryUnescape(account)
	if !validText(account, MaxKey) {
		return ""
	}
	return account
}

func (v *volumeCheck) add(series string, n int64, now time.Time) bool {
	if len(series) > MaxSubject {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	at := cellAt{series, now.Truncate(v.Window).UnixMicro()}
	c := v.cells[at]
	if c == nil {
		if v.latest[series] == 0 && len(v.latest) >= maxSeries || len(v.cells) >= maxCells {
			return false
		}
		c = &counted{}
		v.cells[at] = c
		v.latest[series]++
	}
	c.n += n
	return true
}

func (v *volumeCheck) len() (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.cells {
		if c.n > c.written {
			n++
		}
	}
	return n
}

// flush writes down what was counted. A cell has all that this process counted in its window,
// so writing it again changes nothing.
func (v *volumeCheck) flush(ctx context.Context) error {
	over := time.Now().Truncate(v.Window).UnixMicro()
	var cells []Cell
	v.mu.Lock()
	for at, c := range v.cells {
		switch {
		case c.n > c.written:
			cells = append(cells, Cell{Series: at.series, Start: time.UnixMicro(at.start), Writer: v.writer, N: c.n})
		case at.start < over:
			delete(v.cells, at)
			if v.latest[at.series]--; v.latest[at.series] == 0 {
				delete(v.latest, at.series)
			}
		}
	}
	v.mu.Unlock()
	for len(cells) > 0 {
		batch := cells[:min(len(cells), 500)]
		if err := v.tally(ctx, batch); err != nil {
			return err
		}
		v.mu.Lock()
		for _, c := range batch {
			if known := v.cells[cellAt{c.Series, c.Start.UnixMicro()}]; known != nil {
				known.written = max(known.written, c.N)
			}
		}
		v.mu.Unlock()
		cells = cells[len(batch):]
	}
	return nil
}

func (v *volumeCheck) tally(ctx context.Context, cells []Cell) error {
	limited, cancel := context.WithTimeout(ctx, v.checks.opts.Timeout)
	defer cancel()
	if err := v.checks.store.Tally(limited, v.checks.params(), cells); err != nil {
		v.checks.counts.errors.Add(1)
		return unavailable(fmt.Sprintf("count %d windows", len(cells)), err)
	}
	return nil
}

// find compares the last window that is over for all series, once.
func (v *volumeCheck) find(ctx context.Context, report func(...Sighting) error) error {
	start := time.Now().Add(-v.Lag).Truncate(v.Window).Add(-v.Window)
	if start.Equal(v.compared) {
		return nil
	}
	starts := v.starts(start)
	verdicts := map[string]volume{}
	for after := ""; ; {
		vs, err := v.page(ctx, after, starts)
		if err != nil {
			return err
		}
		for _, s := range vs {
			after = s.Series
			one := v.judge(s, starts)
			verdicts[s.Series] = one
			if !one.low {
				continue
			}
			if err := report(Sighting{Subject: s.Series, Account: seriesAccount(s.Series), Detail: one.note}); err != nil {
				return err
			}
		}
		if len(vs) < seriesPage {
			break
		}
	}
	v.compared, v.verdicts = start, verdicts
	return nil
}

func (v *volumeCheck) page(ctx context.Context, after string, starts []time.Time) ([]Volume, error) {
	limited, cancel := context.WithTimeout(ctx, v.checks.opts.Timeout)
	defer cancel()
	vs, err := v.checks.store.Volumes(limited, v.checks.params(), after, seriesPage, starts)
	if err != nil {
		v.checks.counts.errors.Add(1)
		return nil, unavailable("read volumes", err)
	}
	for _, s := range vs {
		if len(s.N) != len(starts) || s.Series <= after {
			return nil, unavailable("read volumes", fmt.Errorf("the store answered %d of %d windows, or series that do not ascend", len(s.N), len(starts)))
		}
	}
	return vs, nil
}

// starts are the window and those of the same wall-clock time in the weeks before.
func (v *volumeCheck) starts(start time.Time) []time.Time {
	local := start.In(v.Location)
	starts := []time.Time{start.UTC()}
	for k := 1; k <= v.Weeks; k++ {
		before := time.Date(local.Year(), local.Month(), local.Day()-7*k, local.Hour(), local.Minute(), 0, 0, v.Location)
		starts = append(starts, before.UTC().Truncate(v.Window))
	}
	return starts
}

// judge compares a series with its weeks before. It is pure.
func (v *volumeCheck) judge(s Volume, starts []time.Time) volume {
	var before []int64
	for i, start := range starts[1:] {
		if !start.Before(s.Since) { // it was counted then
			before = append(before, s.N[i+1])
		}
	}
	if len(before) < v.MinWeeks {
		return volume{}
	}
	slices.Sort(before)
	usual := before[(len(before)-1)/2] // the lower of two in the middle
	if usual < v.MinVolume {
		return volume{}
	}
	at := starts[0].In(v.Location).Format("Mon 2006-01-02 15:04 MST")
	note := fmt.Sprintf("%d arrived in %v from %s, where %d are usual (median of %d weeks)", s.N[0], v.Window, at, usual, len(before))
	return volume{judged: true, low: float64(s.N[0]) < float64(usual)*(1-v.Drop), note: note}
}

// holds answers from the comparison that this pass, or one before, has made.
func (v *volumeCheck) holds(_ context.Context, f Finding) (Verdict, error) {
	one, ok := v.verdicts[f.Subject]
	switch {
	case v.compared.IsZero():
		return Verdict{Wait: v.Window}, nil
	case !ok:
		return Verdict{Gone: true, Note: "it is not counted any more"}, nil
	case !one.judged:
		return Verdict{Wait: v.Window}, nil
	case one.low:
		return Verdict{Detail: one.note}, nil
	}
	return Verdict{Gone: true, Note: one.note}, nil
}
