package adminlimit

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// The size of a plot: a sample is a unit wide.
const (
	plotWidth  = samples
	plotHeight = 80
)

// plot is some figures of the last ten minutes, over the modes of that time.
type plot struct {
	Title   string
	Top     string // the end of the scale
	Peak    string // the largest figure, if it is beyond the scale
	Summary string // for those who cannot see it
	Lines   []line
	Bands   []band
}

// line is one figure.
type line struct {
	Name, Class string
	Points      string // of an SVG polyline
}

// band is a time in which the limiter was in one mode.
type band struct {
	X, Width    int
	Class, Name string
}

// figure is what a line shows.
type figure struct {
	name, class string
	of          func(*sample) float64
}

// plotsOf returns the plots of samples, the oldest first.
func plotsOf(list []sample) []plot {
	bands := bandsOf(list)
	return []plot{
		newPlot("Decisions a second", list, bands, number,
			figure{"admitted", "a", func(s *sample) float64 { return float64(s.Admitted) }},
			figure{"refused", "b", func(s *sample) float64 { return float64(s.Refused) }}),
		newPlot("Units that Redis does not know yet", list, bands, number,
			figure{"pending", "a", func(s *sample) float64 { return float64(s.Pending) }}),
		newPlot("Exchanges with Redis", list, bands, func(v float64) string { return number(v) + " ms" },
			figure{"average", "a", func(s *sample) float64 { return 1000 * s.Exchange }}),
	}
}

func newPlot(title string, list []sample, bands []band, text func(float64) string, figures ...figure) plot {
	p := plot{Title: title, Bands: bands}
	top, peak := scaleOf(list, figures)
	p.Top, p.Peak = text(top), ""
	most := "at most " + p.Top
	if peak > top {
		p.Peak = text(peak)
		most = "at most " + p.Peak
	}
	said := []string{}
	for _, f := range figures {
		var points strings.Builder
		for i := range list {
			y := float64(plotHeight)
			if top > 0 {
				y -= min(f.of(&list[i])/top, 1) * (plotHeight - 2)
			}
			fmt.Fprintf(&points, "%d,%s ", samples-len(list)+i, strconv.FormatFloat(math.Round(10*y)/10, 'f', -1, 64))
		}
		p.Lines = append(p.Lines, line{f.name, f.class, strings.TrimSpace(points.String())})
		if len(list) > 0 {
			said = append(said, f.name+" "+text(f.of(&list[len(list)-1])))
		}
	}
	p.Summary = title + ": no sample yet."
	if len(said) > 0 {
		p.Summary = fmt.Sprintf("%s: %s in the last ten minutes; now %s.", title, most, strings.Join(said, ", "))
	}
	return p
}

// scaleOf returns the end of a scale and the largest figure. A few seconds far above all others do not
// flatten a plot: the scale ends at three times what 98 of 100 figures above zero are below.
func scaleOf(list []sample, figures []figure) (top, peak float64) {
	var all []float64
	for i := range list {
		for _, f := range figures {
			if v := f.of(&list[i]); v > 0 {
				all = append(all, v)
			}
		}
	}
	if len(all) == 0 {
		return 0, 0
	}
	slices.Sort(all)
	peak = all[len(all)-1]
	return min(peak, 3*all[(len(all)-1)*98/100]), peak
}

// bandsOf returns when the limiter was not synced.
func bandsOf(list []sample) (bands []band) {
	for i := 0; i < len(list); {
		from, mode := i, list[i].Mode
		for i < len(list) && list[i].Mode == mode {
			i++
		}
		if mode == hybrid.Degraded.String() || mode == hybrid.Resyncing.String() {
			bands = append(bands, band{samples - len(list) + from, i - from, mode, mode})
		}
	}
	return bands
}

// number returns a figure with three digits or more.
func number(v float64) string {
	if v >= 100 || v == math.Trunc(v) {
		return strconv.FormatFloat(math.Round(v), 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
