package forecast

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The likelihood against its definition: the density of a normal vector with the
// covariances of the process, by the factor of Cholesky. It shares nothing with
// the quadratic form but the coefficients.
func TestLikelihoodIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var x [lags]float64
		for i := range x {
			x[i] = rng.NormFloat64()
		}
		d := simulate(rng, coefficients(partials(x)), 12+rng.IntN(30))
		m, ok := newLikelihood(d).model(x)
		if !ok {
			t.Fatalf("x = %v: no model", x)
		}
		want := dense(d, m.phi, m.sigma2)
		if math.Abs(m.loglik-want) > 1e-6*(1+math.Abs(want)) {
			t.Errorf("x = %v: log likelihood %v, by definition %v", x, m.loglik, want)
		}
		for _, factor := range []float64{0.9, 1.1} {
			if other := dense(d, m.phi, m.sigma2*factor); other > want {
				t.Errorf("x = %v: %v times the variance is likelier", x, factor)
			}
		}
	}
}

func TestGradient(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		var x [lags]float64
		for i := range x {
			x[i] = 2 * rng.NormFloat64()
		}
		l := newLikelihood(simulate(rng, [lags]float64{0.5, -0.2, 0.1, 0, 0.1}, 40))
		_, g := l.cost(x)
		for i := range x {
			const h = 1e-5
			up, down := x, x
			up[i] += h
			down[i] -= h
			cu, _ := l.cost(up)
			cd, _ := l.cost(down)
			if want := (cu - cd) / (2 * h); math.Abs(g[i]-want) > 1e-6*(1+math.Abs(want)) {
				t.Errorf("x = %v: slope %d is %v, by differences %v", x, i, g[i], want)
			}
		}
	}
}

// No other point near the end of a search, and no end of a search from elsewhere,
// is likelier.
func TestFitIsTheMaximum(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for n := range 600 {
		var x [lags]float64
		for i := range x {
			x[i] = 4 * rng.NormFloat64() // close to the edge of the region, where there are several maxima
		}
		d := simulate(rng, coefficients(partials(x)), 15+rng.IntN(30))
		m, ok := fit(d)
		if !ok {
			t.Fatalf("series %d: no fit", n)
		}
		l := newLikelihood(d)
		for range 10 {
			var start [lags]float64
			for i := range start {
				start[i] = 2 * rng.NormFloat64()
			}
			end, _ := minimise(l.cost, start)
			if other, ok := l.model(end); ok && other.loglik > m.loglik+1e-6 {
				t.Errorf("series %d: log likelihood %v, from another start %v", n, m.loglik, other.loglik)
				break
			}
		}
	}
}

func TestFitRecoversTheProcess(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	truth := [lags]float64{0.5, -0.3, 0.2, 0.1, -0.2}
	m, ok := fit(simulate(rng, truth, 20_000))
	if !ok {
		t.Fatal("no fit")
	}
	for i := range truth {
		if math.Abs(m.phi[i]-truth[i]) > 0.03 {
			t.Errorf("coefficient %d is %v, of the process %v", i+1, m.phi[i], truth[i])
		}
	}
	if math.Abs(m.sigma2-1) > 0.03 {
		t.Errorf("variance %v, of the process 1", m.sigma2)
	}
}

// simulate draws from an autoregression with errors of variance 1, warmed up.
func simulate(rng *rand.Rand, phi [lags]float64, n int) []float64 {
	const warm = 500
	d := make([]float64, warm+n)
	for t := range d {
		d[t] = rng.NormFloat64()
		for i := range min(t, lags) {
			d[t] += phi[i] * d[t-1-i]
		}
	}
	return d[warm:]
}

// dense is the logarithm of the density of d under N(0, C), C[s][t] the
// autocovariance at distance |s-t|, summed from the weights of past errors.
func dense(d []float64, phi [lags]float64, sigma2 float64) float64 {
	n := len(d)
	const terms = 400_000
	psi := make([]float64, 0, 4096)
	for k := range terms {
		p := 0.0
		if k == 0 {
			p = 1
		}
		recent := 0.0
		for i := range min(k, lags) {
			p += phi[i] * psi[k-1-i]
		}
		psi = append(psi, p)
		for i := max(0, k-lags); i <= k; i++ {
			recent += math.Abs(psi[i])
		}
		if k > n && recent < 1e-13 {
			break
		}
	}
	gamma := make([]float64, n)
	for h := range gamma {
		for k := 0; k+h < len(psi); k++ {
			gamma[h] += sigma2 * psi[k] * psi[k+h]
		}
	}
	var loglik float64
	factor, z := make([][]float64, n), make([]float64, n)
	for i := range n {
		factor[i] = make([]float64, i+1)
		for j := range i + 1 {
			sum := gamma[i-j]
			for k := range j {
				sum -= factor[i][k] * factor[j][k]
			}
			if i == j {
				factor[i][i] = math.Sqrt(sum)
			} else {
				factor[i][j] = sum / factor[j][j]
			}
		}
		z[i] = d[i]
		for k := range i {
			z[i] -= factor[i][k] * z[k]
		}
		z[i] /= factor[i][i]
		loglik -= z[i]*z[i]/2 + math.Log(factor[i][i]) + math.Log(2*math.Pi)/2
	}
	return loglik
}
