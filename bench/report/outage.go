package main

import (
	"context"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
)

// plotOutage is what a fleet does in an outage.
const plotOutage = "outage.svg"

// outage runs the demo and returns its figures.
func (m *measurement) outage(ctx context.Context) (string, error) {
	tmp, err := os.MkdirTemp("", "report")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	file := filepath.Join(tmp, "figures")
	if _, err := m.do(ctx, m.root, "go", "run", "./bench/demo", "-figures", file); err != nil {
		return "", err
	}
	figures, err := os.ReadFile(file)
	return string(figures), err
}

// moments returns the rows of the demo, in their order, each of one moment.
func (res *results) moments() (list []*row) {
	for _, r := range res.bench("Outage") {
		if _, ok := r.median("s"); ok {
			list = append(list, r)
		}
	}
	return list
}

// series is a figure of each moment, over time.
func series(list []*row, unit string) (line plotter.XYs) {
	for _, r := range list {
		x, _ := r.median("s")
		if y, ok := r.median(unit); ok {
			line = append(line, plotter.XY{X: x, Y: y})
		}
	}
	return line
}

// spans returns from when to when a figure was above 0.
func spans(list []*row, unit string) (out [][2]float64) {
	was := false
	for _, p := range series(list, unit) {
		if is := p.Y > 0; is && !was {
			out = append(out, [2]float64{p.X, p.X})
		} else if was {
			out[len(out)-1][1] = p.X
		}
		was = p.Y > 0
	}
	return out
}

// plotOfOutage is what a fleet was offered and has admitted of its hottest key, and below it
// how long the slowest of a hundred checks took, with the outage shaded in both.
func plotOfOutage(r recorded) (picture, error) {
	list := r.outage.moments()
	if len(list) < 2 {
		return picture{}, nil
	}
	above, below := newPlot(), newPlot()
	above.Title.Text = "Three nodes lose Redis, and find it again"
	above.Y.Label.Text, below.Y.Label.Text = "units of one key per second", "p99 of a check, µs"
	below.X.Label.Text = "seconds"
	for _, c := range []struct {
		on         *plot.Plot
		unit, name string
		color      color.Color
		dashes     []vg.Length
	}{
		{above, "offered/s", "offered, all nodes together", palette[1], nil},
		{above, "hot/s", "admitted, all nodes together", palette[0], nil},
		{above, "limit/s", "the limit", color.Black, []vg.Length{4, 3}},
		{below, "p99-us", "", palette[2], nil},
	} {
		line, err := plotter.NewLine(series(list, c.unit))
		if err != nil {
			return picture{}, err
		}
		line.Color, line.Width, line.Dashes = c.color, 1.5, c.dashes
		c.on.Add(line)
		if c.name != "" {
			c.on.Legend.Add(c.name, line)
		}
	}
	above.Y.Max *= 1.6 // room for the legend
	above.Legend.Top, above.Legend.Left, above.Legend.Padding = true, true, 2
	for _, p := range []*plot.Plot{above, below} {
		p.X.Min, p.Y.Min = 0, 0
		p.X.Tick.Marker = plot.TickerFunc(everyFive)
		if err := shade(p, spans(list, "away"), p == above); err != nil {
			return picture{}, err
		}
	}
	return picture{above, 7 * vg.Inch, 5 * vg.Inch, below}, nil
}

// everyFive has a mark for every five seconds.
func everyFive(from, to float64) (ticks []plot.Tick) {
	for x := math.Ceil(from/5) * 5; x <= to; x += 5 {
		ticks = append(ticks, plot.Tick{Value: x, Label: strconv.Itoa(int(x))})
	}
	return ticks
}

// shade marks outages, from the bottom of a plot to its top, and gives them a word.
func shade(p *plot.Plot, outages [][2]float64, named bool) error {
	for _, o := range outages {
		box, err := plotter.NewPolygon(plotter.XYs{{X: o[0], Y: 0}, {X: o[1], Y: 0}, {X: o[1], Y: p.Y.Max}, {X: o[0], Y: p.Y.Max}})
		if err != nil {
			return err
		}
		box.Color, box.Width = color.NRGBA{0xc0, 0x39, 0x2b, 0x26}, 0
		p.Add(box)
		if !named {
			continue
		}
		label, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: (o[0] + o[1]) / 2, Y: 0.06 * p.Y.Max}}, Labels: []string{"Redis is away"}})
		if err != nil {
			return err
		}
		label.TextStyle[0].XAlign, label.TextStyle[0].Font = text.XCenter, p.Legend.TextStyle.Font
		p.Add(label)
	}
	return nil
}
