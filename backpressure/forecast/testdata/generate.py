#!/usr/bin/python3
"""Makes statsmodels.json: generated series, and what statsmodels says of them.

    apt-get install python3-statsmodels   # Debian 12: 0.13.5
    /usr/bin/python3 generate.py > statsmodels.json

The model is ARIMA(5,1,0) without constant, by exact maximum likelihood. By itself
the tool starts the level with a variance of 1e6, whatever the unit of the series,
and that is part of its likelihood: for a backlog in the hundred thousands it finds
another maximum or none. So it is asked for the exact diffuse start, on a series in
units of its own changes, from three starting points, and the likeliest end counts.
"""
import json
import warnings

import numpy as np
from statsmodels.tsa.statespace.sarimax import SARIMAX

warnings.simplefilter("ignore")


def changes(rng, phi, n):
    d = np.zeros(n + 300)
    for t in range(len(d)):
        d[t] = rng.normal() + sum(p * d[t - 1 - i] for i, p in enumerate(phi) if t - 1 - i >= 0)
    return d[300:]


def arrivals(rng, n):
    """Independent counts around a slow wave."""
    return rng.poisson(60 + 25 * np.sin(np.arange(n) / 9)).astype(float)


def bursts(rng, n):
    """Quiet, with rare peaks that fade."""
    y = np.zeros(n)
    for t in range(1, n):
        y[t] = 0.6 * y[t - 1] + (rng.exponential(40) if rng.random() < 0.15 else rng.exponential(2))
    return np.round(y, 2)


def backlog(rng, n):
    """What is left over of a wave above the rate of service; it never gets below zero."""
    y, level = [], 90_000.0
    for t in range(n):
        level = max(0.0, level + 6_000 * np.sin(t / 11) + rng.normal(0, 1_500))
        y.append(level)
    return np.round(y, 0)


def smooth(rng, n):
    """Changes that remember, far from zero."""
    return np.round(2_000_000 + 300 * np.cumsum(changes(rng, [1.2, -0.5, 0.1, 0.05, -0.05], n)), 0)


def restless(rng, n):
    """Changes that undo each other."""
    return np.round(500 + 20 * np.cumsum(changes(rng, [-0.7, -0.5, -0.4, -0.3, -0.2], n)), 2)


def tiny(rng, n):
    """A share, such as that of a full queue."""
    return np.round(0.3 + 0.002 * np.cumsum(changes(rng, [0.3, 0.1, 0, 0, 0.2], n)), 6)


def fit(y, steps=3):
    unit = np.diff(y).std()
    m = SARIMAX((y - y[0]) / unit, order=(5, 1, 0), trend="n", use_exact_diffuse=True)
    best = None
    for start in (None, [0, 0, 0, 0, 0, 1], [0.5, 0, 0, 0, 0, 1]):
        r = m.fit(start, disp=0, maxiter=1000, pgtol=1e-9, factr=10.0)
        if best is None or r.llf > best.llf:
            best = r
    f = best.get_forecast(steps)
    widths = {}
    for name, alpha in (("width_85", 0.15), ("width_92", 0.08)):
        low_high = f.conf_int(alpha=alpha)
        widths[name] = ((low_high[:, 1] - low_high[:, 0]) * unit).tolist()
    return dict(
        params=best.params[:5].tolist(),
        sigma2=float(best.params[5] * unit**2),
        forecast=(f.predicted_mean * unit + y[0]).tolist(),
        se=(f.se_mean * unit).tolist(),
        **widths,
    )


def main():
    rng = np.random.default_rng(510)
    cases = []
    for make in (arrivals, bursts, backlog, smooth, restless, tiny):
        for n in (30, 60, 120):
            y = make(rng, n)
            cases.append(dict(series=f"{make.__name__}-{n}", values=y.tolist(), **fit(y)))
    print("[" + ",\n".join(json.dumps(json.loads(json.dumps(c), parse_float=short)) for c in cases) + "]")


def short(text):
    return float(f"{float(text):.9g}")


main()
