package backpressure_test

import (
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/pawl-go/pawl/backpressure"
)

func BenchmarkShaper(b *testing.B) {
	for name, perSecond := range map[string]float64{"admit": 1e9, "refuse": 1e-6} {
		l := lineOf(b, newShaper(b, backpressure.LineOptions{Name: "im", Rate: perSecond}), "im")
		r := rate.NewLimiter(rate.Limit(perSecond), int(max(perSecond, 1)))
		if perSecond < 1 {
			drain(l)
			r.Allow()
		}
		for kind, do := range map[string]func() bool{
			"pawl": func() bool { return l.Allow(1).Admit },
			"rate": func() bool { return r.AllowN(time.Now(), 1) },
		} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						do()
					}
				})
			})
		}
	}
}
