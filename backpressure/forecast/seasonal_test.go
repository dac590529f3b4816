package forecast

import (
	"errors"
	"math"
	"testing"
	"time"
)

func mustSeasonal(t testing.TB, o *SeasonalOptions) *Seasonal {
	t.Helper()
	s, err := NewSeasonal(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// weeks is a series from midnight of a Monday to end: the hour of the week, and
// what change makes of it.
func weeks(t testing.TB, loc *time.Location, end time.Time, change func(time.Time, float64) float64) Series {
	t.Helper()
	s := Series{Every: time.Hour, End: end}
	for at := time.Date(2026, 1, 5, 0, 0, 0, 0, loc); !at.After(end); at = at.Add(time.Hour) {
		v := float64(int(at.Weekday())*24 + at.Hour())
		if change != nil {
			v = change(at, v)
		}
		s.Values = append(s.Values, v)
	}
	return s
}

func hourOfWeek(at time.Time) float64 { return float64(int(at.Weekday())*24 + at.Hour()) }

func TestSeasonalRepeatsTheWeek(t *testing.T) {
	end := time.Date(2026, 1, 28, 15, 0, 0, 0, time.UTC)
	f, err := mustSeasonal(t, &SeasonalOptions{Ahead: 9*time.Hour + 1}).Forecast(weeks(t, time.UTC, end, nil))
	if err != nil {
		t.Fatal(err)
	}
	if f.Method != MethodSeasonal || len(f.Points) != 10 {
		t.Fatalf("%s with %d points", f.Method, len(f.Points))
	}
	for i, p := range f.Points {
		if want := end.Add(time.Duration(i+1) * time.Hour); !p.At.Equal(want) || p.Value != hourOfWeek(want) || p.SE != 0 {
			t.Errorf("%v: %v ± %v, want %v: %v", p.At, p.Value, p.SE, want, hourOfWeek(want))
		}
	}
	if f, err := mustSeasonal(t, nil).Forecast(weeks(t, time.UTC, end, nil)); err != nil || len(f.Points) != 2 {
		t.Errorf("%d points by default (%v), want 2 hours", len(f.Points), err)
	}
}

// A known day is forecast from its kind, and spoils no ordinary day.
func TestSeasonalCalendar(t *testing.T) {
	festivals := []Day{
		{Year: 2026, Month: 1, Day: 21, Kind: "sale"},                  // a Wednesday
		{Year: 2026, Month: 1, Day: 29, Kind: "sale"},                  // a Thursday
		{Year: 2026, Month: 1, Day: 30, Kind: "unseen", Factor: 3},     // a Friday
		{Year: 2026, Month: 1, Day: 31, Kind: "unseen and unweighted"}, // a Saturday
	}
	onSale := func(at time.Time, v float64) float64 {
		if at.Day() == 21 {
			return 1000 + float64(at.Hour())
		}
		return v
	}
	end := time.Date(2026, 1, 27, 23, 0, 0, 0, time.UTC) // a Tuesday
	s := weeks(t, time.UTC, end, onSale)
	f, err := mustSeasonal(t, &SeasonalOptions{Ahead: 4 * 24 * time.Hour, Calendar: festivals}).Forecast(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Points {
		var want float64
		switch p.At.Day() {
		case 28: // the Wednesday after the sale: from the one before it
			want = hourOfWeek(p.At)
		case 29:
			want = 1000 + float64(p.At.Hour())
		case 30:
			want = 3 * hourOfWeek(p.At)
		case 31:
			want = hourOfWeek(p.At)
		}
		if math.Abs(p.Value-want) > 1e-9 {
			t.Errorf("%v: %v, want %v", p.At, p.Value, want)
		}
	}
	plain, err := mustSeasonal(t, &SeasonalOptions{Ahead: time.Hour}).Forecast(s)
	if err != nil || plain.Points[0].Value != 1000 {
		t.Errorf("without a calendar the sale is not repeated: %v (%v)", plain.Points, err)
	}
}

// At the change to summer time, 9 o'clock is forecast from 9 o'clock.
func TestSeasonalSummerTime(t *testing.T) {
	loc, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zones: ", err)
	}
	end := time.Date(2026, 3, 30, 8, 0, 0, 0, loc) // the day after the change
	f, err := mustSeasonal(t, &SeasonalOptions{Location: loc}).Forecast(weeks(t, loc, end, nil))
	if err != nil {
		t.Fatal(err)
	}
	if p := f.Points[0]; p.At.Hour() != 9 || p.Value != hourOfWeek(p.At) {
		t.Errorf("%v: %v, want %v", p.At, p.Value, hourOfWeek(p.At))
	}
}

// A season ahead and more, the latest season there is goes on.
func TestSeasonalFarAhead(t *testing.T) {
	end := time.Date(2026, 1, 21, 23, 0, 0, 0, time.UTC)
	f, err := mustSeasonal(t, &SeasonalOptions{Ahead: 400 * 24 * time.Hour}).Forecast(weeks(t, time.UTC, end, nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Points {
		if p.Value != hourOfWeek(p.At) {
			t.Fatalf("%v: %v, want %v", p.At, p.Value, hourOfWeek(p.At))
		}
	}
}

func TestSeasonalStandardError(t *testing.T) {
	end := time.Date(2026, 2, 1, 23, 0, 0, 0, time.UTC)
	s := weeks(t, time.UTC, end, func(at time.Time, v float64) float64 {
		if _, week := at.ISOWeek(); week%2 == 0 {
			return v + 10
		}
		return v
	})
	f, err := mustSeasonal(t, nil).Forecast(s)
	if err != nil {
		t.Fatal(err)
	}
	if se := f.Points[0].SE; math.Abs(se-10) > 1e-9 {
		t.Errorf("standard error %v, each value was 10 off", se)
	}
}

func TestSeasonalRefuses(t *testing.T) {
	nan := math.NaN()
	for _, o := range []SeasonalOptions{
		{Ahead: -1}, {Days: -1}, {Days: 367}, {Confidence: 1}, {Confidence: nan}, {MaxPoints: -1}, {MaxPoints: 100_001},
		{Calendar: make([]Day, 10_001)},
		{Calendar: []Day{{2026, 2, 30, "x", 1}}},
		{Calendar: []Day{{2026, 13, 1, "x", 1}}},
		{Calendar: []Day{{2026, 1, 1, "", 1}}},
		{Calendar: []Day{{2026, 1, 1, "x", nan}}},
		{Calendar: []Day{{2026, 1, 1, "x", -1}}},
		{Calendar: []Day{{2026, 1, 1, "x", 1001}}},
		{Calendar: []Day{{2026, 1, 1, "x", 1}, {2026, 1, 1, "y", 1}}},
	} {
		if _, err := NewSeasonal(&o); !errors.Is(err, ErrInvalid) {
			t.Errorf("NewSeasonal of %d days: %v", len(o.Calendar), err)
		}
	}
	end := time.Date(2026, 1, 11, 12, 0, 0, 0, time.UTC)
	good := weeks(t, time.UTC, end, nil)
	for name, c := range map[string]struct {
		s    Series
		o    SeasonalOptions
		want error
	}{
		"less than a week":  {good, SeasonalOptions{}, ErrTooShort},
		"no end":            {Series{Values: good.Values, Every: time.Hour}, SeasonalOptions{}, ErrInvalid},
		"no distance":       {Series{Values: good.Values, End: end}, SeasonalOptions{}, ErrInvalid},
		"two days apart":    {Series{Values: good.Values, End: end, Every: 48 * time.Hour}, SeasonalOptions{}, ErrInvalid},
		"too many steps":    {Series{Values: good.Values, End: end, Every: 1}, SeasonalOptions{}, ErrInvalid},
		"a NaN":             {Series{Values: []float64{1, nan, 2}, End: end, Every: time.Hour}, SeasonalOptions{}, ErrNotFinite},
		"constant":          {Series{Values: make([]float64, 500), End: end, Every: time.Hour}, SeasonalOptions{}, ErrConstant},
		"only a known past": {good, SeasonalOptions{Days: 1, Calendar: []Day{{2026, 1, 5, "a", 1}, {2026, 1, 6, "b", 1}, {2026, 1, 7, "c", 1}, {2026, 1, 8, "d", 1}, {2026, 1, 9, "e", 1}, {2026, 1, 10, "f", 1}, {2026, 1, 11, "g", 1}}}, ErrTooShort},
	} {
		f, err := mustSeasonal(t, &c.o).Forecast(c.s)
		if !errors.Is(err, c.want) || f.Points != nil {
			t.Errorf("%s: %v with %d points, want %v", name, err, len(f.Points), c.want)
		}
	}
}

// The slowest call: the longest series, looked at as far ahead as can be.
func BenchmarkSeasonalLongest(b *testing.B) {
	end := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := Series{Values: walk(1, maxMaxPoints), End: end, Every: 24 * time.Hour}
	f := mustSeasonal(b, &SeasonalOptions{Ahead: 10_000 * 24 * time.Hour})
	for b.Loop() {
		if _, err := f.Forecast(s); err != nil {
			b.Fatal(err)
		}
	}
}
