package forecast

import "math"

// lags is the order of the autoregression.
const lags = 5

// exactRule is the share of the mean square of the differences below which the
// errors are taken as rounding: the series then follows a rule without error,
// where the likelihood grows without bound.
const exactRule = 1e-9

// A likelihood is that of a stationary autoregression, given a series. With the
// partial autocorrelations r, the coefficients phi that belong to them, and the
// variance of the errors at its best for them, its logarithm is, but for a
// constant,
//
//	-n/2 log S(phi) + 1/2 sum of j log(1 - r[j]^2), j = 1 to 5
//
// where S(phi) = u'Du with u = (1, -phi), and D[i][j] = sum of d[i+t] d[j+t] over
// the n-i-j values of t where both factors are in the series. That is exact: the
// first five values, of which less than five are known before, are part of S.
type likelihood struct {
	n int
	d [lags + 1][lags + 1]float64
}

func newLikelihood(d []float64) *likelihood {
	l := &likelihood{n: len(d)}
	for i := range lags + 1 {
		for j := range i + 1 {
			var sum float64
			for t := range len(d) - i - j {
				sum += d[i+t] * d[j+t]
			}
			l.d[i][j], l.d[j][i] = sum, sum
		}
	}
	return l
}

// cost is minus the logarithm of the likelihood divided by n, and its gradient,
// at partial autocorrelations r = x / sqrt(1 + x^2): any x is stationary. It is
// +Inf where the errors are no more than rounding.
func (l *likelihood) cost(x [lags]float64) (cost float64, gradient [lags]float64) {
	r := partials(x)
	phi := coefficients(r)
	s, ds := l.squares(phi)
	if !(s > exactRule/100*l.d[0][0]) {
		return math.Inf(1), gradient
	}
	n := float64(l.n)
	cost = math.Log(s/n) / 2
	jacobian := jacobian(r)
	for k := range lags {
		j := float64(k + 1)
		cost += j * math.Log1p(x[k]*x[k]) / (2 * n)
		var dr float64
		for i := range lags {
			dr += ds[i] * jacobian[k][i]
		}
		gradient[k] = dr/(2*s)*math.Pow(1+x[k]*x[k], -1.5) + j*x[k]/((1+x[k]*x[k])*n)
	}
	return cost, gradient
}

// squares is S and its gradient by phi.
func (l *likelihood) squares(phi [lags]float64) (s float64, gradient [lags]float64) {
	u := [lags + 1]float64{0: 1}
	for i := range lags {
		u[i+1] = -phi[i]
	}
	for i := range lags + 1 {
		var row float64
		for j := range lags + 1 {
			row += l.d[i][j] * u[j]
		}
		s += u[i] * row
		if i > 0 {
			gradient[i-1] = -2 * row
		}
	}
	return s, gradient
}

// model is the fitted model at x, or false if the series follows an exact rule.
func (l *likelihood) model(x [lags]float64) (model, bool) {
	cost, _ := l.cost(x)
	phi := coefficients(partials(x))
	s, _ := l.squares(phi)
	if !finite(cost) || !(s > exactRule*l.d[0][0]) {
		return model{}, false
	}
	n := float64(l.n)
	return model{phi: phi, sigma2: s / n, loglik: -n * (cost + (math.Log(2*math.Pi)+1)/2)}, true
}

func partials(x [lags]float64) (r [lags]float64) {
	for k := range lags {
		r[k] = x[k] / math.Sqrt(1+x[k]*x[k])
	}
	return r
}

// coefficients are those of the autoregression with partial autocorrelations r,
// by the recursion of Durbin and Levinson.
func coefficients(r [lags]float64) (phi [lags]float64) {
	for k := range lags {
		before := phi
		for i := range k {
			phi[i] = before[i] - r[k]*before[k-1-i]
		}
		phi[k] = r[k]
	}
	return phi
}

// jacobian[k][i] is the derivative of phi[i] by r[k]: the same recursion,
// differentiated.
func jacobian(r [lags]float64) (j [lags][lags]float64) {
	var phi [lags]float64
	for k := range lags {
		before := phi
		for m := range k {
			row := j[m]
			for i := range k {
				j[m][i] = row[i] - r[k]*row[k-1-i]
			}
		}
		for i := range k {
			phi[i] = before[i] - r[k]*before[k-1-i]
			j[k][i] = -before[k-1-i]
		}
		phi[k], j[k][k] = r[k], 1
	}
	return j
}
