package forecast_test

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/pawl-go/pawl/backpressure/forecast"
)

// A backlog grows; the advice comes before it is above the mark.
func Example() {
	arima, err := forecast.NewARIMA(nil) // three steps, intervals of 90 %
	if err != nil {
		panic(err)
	}
	advisor, err := forecast.NewAdvisor(&forecast.AdvisorOptions{MaxCapacity: 20_000})
	if err != nil {
		panic(err)
	}

	var backlog []float64
	for i := range 60 {
		x := float64(i)
		backlog = append(backlog, math.Round(2000+x*x+120*math.Sin(x*x)))
	}
	f, err := arima.Forecast(forecast.Series{Values: backlog, Every: time.Minute})
	if err != nil {
		panic(err)
	}
	const capacity = 7_000 // messages that may wait
	advice, err := advisor.Advise(capacity, f)
	if err != nil {
		panic(err)
	}
	fmt.Println("by", f.Method)
	fmt.Println("too much now:", backlog[59] > advice.Mark)
	fmt.Println("too much soon:", advice.Exceeds, "in", advice.Lead)
	fmt.Printf("add %.0f %%: %.0f\n", 100*advice.Scale, advice.Capacity)
	fmt.Println("level:", advice.Raise(0, 1))
	// Output:
	// by arima(5,1,0)
	// too much now: false
	// too much soon: true in 1m0s
	// add 30 %: 9100
	// level: 1
}

// A series that is too short for the model is answered all the same.
func ExampleForecast_reason() {
	arima, err := forecast.NewARIMA(nil)
	if err != nil {
		panic(err)
	}
	f, err := arima.Forecast(forecast.Series{Values: []float64{3, 5, 4, 6}})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%.0f by %s: %s\n", f.Points[0].Value, f.Method, f.Reason)

	_, err = arima.Forecast(forecast.Series{Values: []float64{7, 7, 7, 7}})
	fmt.Println(errors.Is(err, forecast.ErrConstant), err)
	// Output:
	// 6 by last value: 4 values, arima(5,1,0) needs 30; 4 values, damped holt needs 10
	// true forecast: constant series: 4 values of 7; nothing was forecast, see whether the gauge is stuck
}

// The eve of a festival, two hours before midnight.
func ExampleSeasonal() {
	seasonal, err := forecast.NewSeasonal(&forecast.SeasonalOptions{
		Ahead:    3 * time.Hour,
		Calendar: []forecast.Day{{Year: 2026, Month: time.February, Day: 17, Kind: "spring festival 1", Factor: 4}},
	})
	if err != nil {
		panic(err)
	}
	s := forecast.Series{Every: time.Hour, End: time.Date(2026, time.February, 16, 22, 0, 0, 0, time.UTC)}
	for at := s.End.AddDate(0, 0, -21); !at.After(s.End); at = at.Add(time.Hour) {
		s.Values = append(s.Values, float64(100+at.Hour()))
	}
	f, err := seasonal.Forecast(s)
	if err != nil {
		panic(err)
	}
	for _, p := range f.Points {
		fmt.Printf("%s %.0f\n", p.At.Format("Mon 15:04"), p.Value)
	}
	// Output:
	// Mon 23:00 123
	// Tue 00:00 400
	// Tue 01:00 404
}
