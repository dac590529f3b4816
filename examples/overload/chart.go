package main

import (
	"bytes"
	"fmt"
	"strings"
)

const (
	gray  = "#6e7781"
	amber = "#bf8700"
	blue  = "#0969da"
)

// chart draws four pictures into one SVG, on a background of its own, so that it is
// legible on any page.
func (r *report) chart() []byte {
	s := new(svg)
	s.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 640" font-family="system-ui, sans-serif" font-size="12" fill="#24292f">` + "\n")
	s.printf(`<rect x="0.5" y="0.5" width="879" height="639" rx="6" fill="#ffffff" stroke="#d0d7de"/>` + "\n")
	r.drawGoodput(s.panel(60, 60, "Two-call tasks that succeed, of as many as can"))
	r.drawClasses(s.panel(500, 60, "By class, at twice what can be served"))
	r.drawRetries(s.panel(60, 380, "A service slow for 20 s: calls a second"))
	r.drawDrain(s.panel(500, 380, "Five minutes of +300 %: millions that wait"))
	s.printf("</svg>\n")
	return s.Bytes()
}

func (r *report) drawGoodput(p *panel) {
	p.scale(0, 4, 0, 1)
	p.ticksY(0, 0.25, "%.0f %%", 100)
	for _, load := range loads {
		p.labelX(load, fmt.Sprintf("%gx", load))
	}
	for i, a := range admitters {
		var points []point
		for _, c := range r.Classes {
			if c.Admitter == a.name {
				points = append(points, point{c.Load, min(c.OfIdeal, 1)})
			}
		}
		p.line(points, colours[i], a.name)
	}
}

// colours are those of the admitters.
var colours = [3]string{gray, amber, blue}

func (r *report) drawClasses(p *panel) {
	p.scale(0, 5, 0, 1)
	p.ticksY(0, 0.25, "%.0f %%", 100)
	for i, a := range admitters {
		p.legend(colours[i], a.name)
		for _, c := range r.Classes {
			if c.Admitter != a.name || c.Load != 2 {
				continue
			}
			for class, share := range c.Classes {
				p.bar(float64(class)+0.14+0.24*float64(i), 0.22, share, colours[i])
			}
		}
	}
	for class, name := range []string{"highest", "high", "middle", "low", "lowest"} {
		p.labelX(float64(class)+0.5, name)
	}
}

func (r *report) drawRetries(p *panel) {
	most := 0
	for _, x := range r.Retries {
		for _, n := range x.PerSecond {
			most = max(most, n)
		}
	}
	p.scale(0, hiccupEnd.Seconds(), 0, float64(most/1000+1)*1000)
	p.ticksY(0, 1000, "%.0f", 1)
	for _, at := range []float64{0, 30, 60, 90, 120, 150} {
		p.labelX(at, fmt.Sprintf("%.0f s", at))
	}
	for _, x := range r.Retries {
		name, colour := x.Retry, ""
		switch {
		case x.Service == noGate && x.Retry == everySecond:
			colour = gray
		case x.Service == noGate && x.Retry == gradient:
			colour = amber
		case x.Service == withGate && x.Retry == gradient:
			name, colour = name+" and gate", blue
		default:
			continue
		}
		var points []point
		for second, n := range x.PerSecond[:int(hiccupEnd.Seconds())] {
			points = append(points, point{float64(second), float64(n)})
		}
		p.line(points, colour, name)
	}
}

func (r *report) drawDrain(p *panel) {
	without, with := r.drained(withoutLevels), r.drained(withLevels)
	p.scale(0, 40, 0, float64(int(without.Peak/5e6)+1)*5)
	p.ticksY(0, 5, "%.0f", 1)
	for _, at := range []float64{0, 10, 20, 30, 40} {
		p.labelX(at, fmt.Sprintf("%.0f min", at))
	}
	for _, d := range []struct {
		surgeRow
		colour string
	}{{without, gray}, {with, blue}} {
		var points []point
		for i := 0; i < len(d.Backlog); i += 3 {
			at := float64(i) * every.Minutes()
			points = append(points, point{min(at, 40), d.Backlog[i] / 1e6})
		}
		points = append(points, point{min(float64(len(d.Backlog))*every.Minutes(), 40), 0})
		p.line(points, d.colour, d.Case)
	}
}

// drained is the first row with those measures.
func (r *report) drained(measures string) surgeRow {
	for _, d := range r.Drain {
		if d.Case == measures {
			return d
		}
	}
	return surgeRow{}
}

type svg struct{ bytes.Buffer }

func (s *svg) printf(format string, args ...any) { fmt.Fprintf(s, format, args...) }

// A panel is one picture, 340 by 210 units, with its axes.
type panel struct {
	*svg
	x, y                   float64 // of the upper left corner
	fromX, toX, fromY, toY float64
	legends                float64 // how far the legend has come
}

const panelWidth, panelHeight = 340.0, 210.0

type point struct{ x, y float64 }

func (s *svg) panel(x, y float64, title string) *panel {
	s.printf(`<text x="%g" y="%g" font-size="14" font-weight="600">%s</text>`+"\n", x, y-28, title)
	return &panel{svg: s, x: x, y: y}
}

func (p *panel) scale(fromX, toX, fromY, toY float64) {
	p.fromX, p.toX, p.fromY, p.toY = fromX, toX, fromY, toY
}

func (p *panel) atX(x float64) float64 { return p.x + (x-p.fromX)/(p.toX-p.fromX)*panelWidth }
func (p *panel) atY(y float64) float64 {
	return p.y + panelHeight - (y-p.fromY)/(p.toY-p.fromY)*panelHeight
}

func (p *panel) ticksY(from, step float64, format string, times float64) {
	for y := from; y <= p.toY+step/1e6; y += step {
		at := p.atY(y)
		p.printf(`<path d="M%g %.1fh%g" stroke="#d8dee4"/>`, p.x, at, panelWidth)
		p.printf(`<text x="%g" y="%.1f" text-anchor="end" fill="#57606a">%s</text>`+"\n", p.x-6, at+4, fmt.Sprintf(format, y*times))
	}
}

func (p *panel) labelX(x float64, text string) {
	p.printf(`<text x="%.1f" y="%g" text-anchor="middle" fill="#57606a">%s</text>`+"\n", p.atX(x), p.y+panelHeight+18, text)
}

func (p *panel) line(points []point, colour, name string) {
	p.legend(colour, name)
	var d strings.Builder
	for i, at := range points {
		if i == 0 {
			d.WriteByte('M')
		} else {
			d.WriteByte('L')
		}
		fmt.Fprintf(&d, "%.1f %.1f", p.atX(at.x), p.atY(at.y))
	}
	p.printf(`<path d="%s" fill="none" stroke="%s" stroke-width="2" stroke-linejoin="round"/>`+"\n", d.String(), colour)
}

func (p *panel) bar(x, width, y float64, colour string) {
	top := min(p.atY(y), p.y+panelHeight-1) // nothing is seen as nothing, but seen
	p.printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n",
		p.atX(x), top, p.atX(x+width)-p.atX(x), p.y+panelHeight-top, colour)
}

func (p *panel) legend(colour, name string) {
	x := p.x + p.legends
	p.printf(`<rect x="%g" y="%g" width="10" height="10" rx="2" fill="%s"/><text x="%g" y="%g">%s</text>`+"\n", x, p.y-20, colour, x+14, p.y-11, name)
	p.legends += 34 + 6.5*float64(len(name))
}
