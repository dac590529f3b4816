package forecast

import "math"

// fit finds the model of greatest likelihood. The likelihood can have several
// maxima: the search starts from Burg's estimate, from no memory at all and from
// strong memory of either sign, and the best end counts.
func fit(d []float64) (model, bool) {
	l := newLikelihood(d)
	starts := [...][lags]float64{burg(d), {}, {1.5, -0.5}, {-1.5, -0.5}}
	best, least := [lags]float64{}, math.Inf(1)
	for _, x := range starts {
		if x, cost := minimise(l.cost, x); cost < least {
			best, least = x, cost
		}
	}
	return l.model(best)
}

// burg estimates partial autocorrelations from forward and backward errors; they
// are always stationary. It returns them as x of likelihood.cost.
func burg(d []float64) (x [lags]float64) {
	n := len(d)
	forward, backward := append([]float64(nil), d...), append([]float64(nil), d...)
	for k := range lags {
		var product, squares float64
		for t := k + 1; t < n; t++ {
			product += forward[t] * backward[t-1]
			squares += forward[t]*forward[t] + backward[t-1]*backward[t-1]
		}
		var r float64
		if squares > 0 {
			r = max(-0.999, min(0.999, 2*product/squares))
		}
		for t := n - 1; t > k; t-- {
			f, b := forward[t], backward[t-1]
			forward[t], backward[t] = f-r*b, b-r*f
		}
		x[k] = r / math.Sqrt(1-r*r)
	}
	return x
}

const (
	maxRounds  = 200
	flat       = 1e-14 // decrease of the cost that a whole step promises
	sufficient = 1e-4  // of the decrease that the slope promises
	curvature  = 0.9   // of the slope that may be left after a step
)

// minimise goes downhill from x by the method of Broyden, Fletcher, Goldfarb and
// Shanno (Nocedal and Wright, Numerical Optimization, chapter 6). A start where
// the cost is infinite is returned as it is. The cost never rises, so a search
// that runs out of rounds still ends no worse than it began.
func minimise(cost func([lags]float64) (float64, [lags]float64), x [lags]float64) ([lags]float64, float64) {
	f, g := cost(x)
	if !finite(f) {
		return x, f
	}
	inverse, fresh := identity(1), true // of the second derivatives
	for range maxRounds {
		var p [lags]float64
		for i := range lags {
			p[i] = -dot(inverse[i], g)
		}
		if !(dot(p, g) < 0) {
			inverse, fresh = identity(1), true
			p = scaled(g, -1)
		}
		if -dot(p, g) < flat {
			break
		}
		nx, nf, ng, ok := lineSearch(cost, x, f, g, p)
		if !ok {
			if fresh {
				break
			}
			inverse, fresh = identity(1), true
			continue
		}
		step, change := minus(nx, x), minus(ng, g)
		x, f, g = nx, nf, ng
		if sy := dot(step, change); sy > 1e-300 {
			if fresh {
				inverse, fresh = identity(sy/dot(change, change)), false
			}
			inverse = update(inverse, step, change, sy)
		}
	}
	return x, f
}

// lineSearch finds a step along p that meets the conditions of Wolfe, by doubling
// and halving. If it meets the first of them only, that is good enough.
func lineSearch(cost func([lags]float64) (float64, [lags]float64), x [lags]float64, f float64, g, p [lags]float64) (nx [lags]float64, nf float64, ng [lags]float64, ok bool) {
	slope := dot(p, g)
	if longest := norm(p); longest > 2 { // of x, where 2 is most of the way from 0 to 1 for r
		p, slope = scaled(p, 2/longest), slope*2/longest
	}
	low, high, t := 0.0, math.Inf(1), 1.0
	for range 60 {
		var at [lags]float64
		for i := range lags {
			at[i] = x[i] + t*p[i]
		}
		c, grad := cost(at)
		switch {
		case !(c < f && c <= f+sufficient*t*slope):
			high = t
		case dot(p, grad) < curvature*slope:
			nx, nf, ng, ok = at, c, grad, true
			low = t
		default:
			return at, c, grad, true
		}
		if math.IsInf(high, 1) {
			t *= 2
		} else {
			t = (low + high) / 2
		}
	}
	return nx, nf, ng, ok
}

type matrix [lags][lags]float64

func identity(scale float64) (m matrix) {
	for i := range lags {
		m[i][i] = scale
	}
	return m
}

// update makes the inverse agree with a step and the change of gradient along it.
func update(inverse matrix, step, change [lags]float64, sy float64) matrix {
	var hy [lags]float64
	for i := range lags {
		hy[i] = dot(inverse[i], change)
	}
	factor := (1 + dot(change, hy)/sy) / sy
	for i := range lags {
		for j := range lags {
			inverse[i][j] += factor*step[i]*step[j] - (hy[i]*step[j]+step[i]*hy[j])/sy
		}
	}
	return inverse
}

func dot(a, b [lags]float64) (sum float64) {
	for i := range lags {
		sum += a[i] * b[i]
	}
	return sum
}

func minus(a, b [lags]float64) [lags]float64 {
	for i := range lags {
		a[i] -= b[i]
	}
	return a
}

func scaled(a [lags]float64, by float64) [lags]float64 {
	for i := range lags {
		a[i] *= by
	}
	return a
}

func norm(a [lags]float64) float64 { return math.Sqrt(dot(a, a)) }
