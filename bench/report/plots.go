package main

import (
	"bytes"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colours that are told apart by most people, and in print.
var palette = []color.Color{
	color.RGBA{0x1f, 0x5f, 0xa8, 0xff}, color.RGBA{0xd9, 0x7a, 0x1e, 0xff}, color.RGBA{0x2f, 0x8f, 0x5b, 0xff}, color.RGBA{0x8c, 0x4a, 0x9e, 0xff},
}

// picture is a plot and its size. A picture without a plot is none: there are
// no figures for it.
type picture struct {
	*plot.Plot
	width, height vg.Length
	below         *plot.Plot // with the same axis of X; nil: none
}

// newPlot returns an empty plot in letters that suit a web page.
func newPlot() *plot.Plot {
	plot.DefaultFont.Variant = "Sans"
	p := plot.New()
	p.Title.Padding = 6
	return p
}

// drawPlots returns the plots that there are figures for, by file name.
func drawPlots(r recorded) (map[string][]byte, error) {
	out := map[string][]byte{}
	for name, draw := range map[string]func(recorded) (picture, error){plotChecks: plotOfChecks, plotAccuracy: plotOfAccuracy, plotCost: plotOfCost, plotSmall: plotOfSmall, plotOutage: plotOfOutage} {
		p, err := draw(r)
		if err != nil {
			return nil, err
		}
		if p.Plot == nil {
			continue
		}
		if out[name], err = p.svg(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// margin is room for labels that stand out over the end of an axis.
const margin = 14

// svg draws p, on white: it is seen on pages of any colour.
func (p picture) svg() ([]byte, error) {
	c := vgsvg.New(p.width, p.height)
	area := draw.Crop(draw.New(c), margin, -margin, margin, -margin)
	if p.below == nil {
		p.Draw(area)
	} else {
		rows := []*plot.Plot{p.Plot, p.below}
		at := plot.Align([][]*plot.Plot{rows[:1], rows[1:]}, draw.Tiles{Rows: 2, Cols: 1, PadY: margin}, area)
		for i, row := range rows {
			row.Draw(at[i][0])
		}
	}
	var b bytes.Buffer
	_, err := c.WriteTo(&b)
	return b.Bytes(), err
}

// plotOfChecks is a bar per limiter and mode, for the load of 65,536 keys.
func plotOfChecks(r recorded) (picture, error) {
	list := r.bench.checks("Allow")
	if len(list) == 0 {
		return picture{}, nil
	}
	const load = "65536/uniform"
	names := limitersOf(list, load)
	slices.Reverse(names) // the fastest on top
	return bars{"ns per check, " + load, names, modes, func(name, mode string) (float64, bool) {
		c, ok := same(list, name, check{load: load, mode: mode})
		if !ok {
			return 0, false
		}
		return c.ns(), true
	}}.picture()
}

// plotOfCost is the processor time of a check, far from every limit and on one node: two bars
// for each limiter and rate. What is too little to be told from nothing has none.
func plotOfCost(r recorded) (picture, error) {
	var names []string
	values := map[string][]float64{}
	for _, c := range r.cost.costs("") {
		if c.kind != "far" || c.path[4] != "1" || c.limiter == noLimiter {
			continue
		}
		name := thousands(c.path[2]) + "/s, " + c.limiter
		for _, unit := range perCheck {
			v, _ := r.cost.spent(c.limiter, c.load, unit)
			values[name] = append(values[name], v.v)
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return picture{}, nil
	}
	slices.Reverse(names) // the first on top
	series := []string{"client", "Redis"}
	return bars{"processor time per check, µs", names, series, func(name, of string) (float64, bool) {
		v := values[name][slices.Index(series, of)]
		return v, v > leastBar
	}}.picture()
}

// plotOfSmall is what fleets admit whose keys are asked at random nodes, by what one process
// admits: a bar for our nodes and one for nodes that count for themselves.
func plotOfSmall(r recorded) (picture, error) {
	var names []string
	values := map[string]float64{}
	for _, s := range r.small.smalls("random", "") {
		v, ok := s.median("to-one")
		if !ok || s.nodes == "1" {
			continue
		}
		name := s.rule + " " + s.limit + ", " + s.nodes + " nodes"
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		values[name+s.limiter] = v
	}
	if len(names) == 0 {
		return picture{}, nil
	}
	slices.Reverse(names) // the first on top
	return bars{"units admitted ÷ one process, limits per 30 s", names, []string{"hybrid", "alone"}, func(name, limiter string) (float64, bool) {
		v, ok := values[name+limiter]
		return v, ok
	}}.picture()
}

// leastBar is where the logarithmic axis of bars begins at the least.
const leastBar = 0.1

// bars are a plot of a few bars for each of some names, from the bottom upwards. Figures
// differ by a factor of a thousand, so that the axis is logarithmic: what bars say is where
// they end.
type bars struct {
	title         string
	names, series []string
	value         func(name, series string) (float64, bool)
}

func (b bars) picture() (picture, error) {
	p := newPlot()
	p.Title.Text = b.title
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	least, most := math.Inf(1), 1.0
	for _, series := range b.series {
		for _, name := range b.names {
			if v, ok := b.value(name, series); ok {
				least, most = min(least, v), max(most, v)
			}
		}
	}
	start := decade(max(least/2, leastBar), math.Floor)
	const half = 0.19 // of the width of a bar; the rows are 1 apart
	for m, series := range b.series {
		var last *plotter.Polygon
		for i, name := range b.names {
			v, ok := b.value(name, series)
			if !ok {
				continue
			}
			y := float64(i) + half*float64(1-2*m)
			bar, err := plotter.NewPolygon(plotter.XYs{{X: start, Y: y - half}, {X: v, Y: y - half}, {X: v, Y: y + half}, {X: start, Y: y + half}})
			if err != nil {
				return picture{}, err
			}
			bar.Color, bar.Width = palette[m], 0
			p.Add(bar)
			last = bar
		}
		if last != nil {
			p.Legend.Add(series, last)
		}
	}
	p.NominalY(b.names...)
	p.X.Min, p.X.Max = start, decade(1.1*most, math.Ceil)
	p.Y.Min, p.Y.Max = -0.6, float64(len(b.names))-0.4
	p.Legend.Top = true // beside the fastest, where there is room
	return picture{p, 7 * vg.Inch, vg.Length(len(b.names))*0.3*vg.Inch + 1.2*vg.Inch, nil}, nil
}

// decade returns the power of ten below or above v.
func decade(v float64, round func(float64) float64) float64 {
	return math.Pow(10, round(math.Log10(v)))
}

// leastShown is where the logarithmic axis of the overshoot begins; less is
// drawn there.
const leastShown = 0.01

// plotOfAccuracy is the overshoot of the mean window by sync interval: a
// colour per rule, dashed without the trigger.
func plotOfAccuracy(r recorded) (picture, error) {
	list := points(r.accuracy)
	if len(list) == 0 {
		return picture{}, nil
	}
	p := newPlot()
	p.Title.Text = "Admitted above the limit, 4 nodes, tenfold overload"
	p.X.Label.Text, p.Y.Label.Text = "sync interval, s", "% of the limit, mean window"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	var rules []string
	for _, q := range list {
		if !slices.Contains(rules, q.rule) {
			rules = append(rules, q.rule)
		}
	}
	slices.Sort(rules)
	for i, rule := range rules {
		for _, code := range []string{withTrigger, withoutTrigger} {
			var line plotter.XYs
			for _, q := range list {
				if v, ok := q.median("overshoot-%"); ok && q.rule == rule && q.code == code {
					line = append(line, plotter.XY{X: q.interval.Seconds(), Y: max(v, leastShown)})
				}
			}
			if len(line) == 0 {
				continue
			}
			l, err := plotter.NewLine(line)
			if err != nil {
				return picture{}, err
			}
			l.Color, l.Width = palette[i%len(palette)], 1.5
			name := rule
			if code == withoutTrigger {
				l.Dashes = []vg.Length{5, 3}
				name += ", no trigger"
			}
			p.Add(l)
			p.Legend.Add(name, l)
		}
	}
	p.Legend.Top, p.Legend.Left = true, true
	// Whole decades: around a single point gonum would make room down to below 0.
	p.X.Min = decade(list[0].interval.Seconds(), math.Floor)
	p.X.Max = max(decade(list[len(list)-1].interval.Seconds(), math.Ceil), 10*p.X.Min)
	p.Y.Min, p.Y.Max = leastShown, max(p.Y.Max, 1000)
	return picture{p, 7 * vg.Inch, 4.5 * vg.Inch, nil}, nil
}
