package main

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/hybridlimit/hybridlimit/adapter/promlimit/promtest"
)

const (
	column, line = 60, 30 // pixels of a unit of the layout
	left, under  = 64, 44 // pixels beside and below the lines: numbers, times and names
)

// colors are those of lines that the dashboard gives none, and its names of colors.
var (
	colors = []string{"#1f77b4", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#bcbd22", "#7f7f7f", "#d62728"}
	named  = map[string]string{"red": "#d62728", "green": "#2ca02c", "yellow": "#e0a800", "orange": "#ff7f0e", "blue": "#1f77b4", "purple": "#9467bd"}
)

// panel is what the page shows of one.
type panel struct {
	promtest.Panel
	X, Y, W, H int
	Value      string // of a single number, instead of lines
	Color      string
	Marks      []mark // times that are marked
	Lines      []series
	Rows, Cols []mark // of the grid
}

type mark struct {
	X, Y, W, H float64
	Text       string
}

type series struct{ Name, Color, Points string }

// view is what a page shows, and from where.
type view struct {
	prom     *promtest.Prometheus
	from, to time.Time
	step     time.Duration
}

// draw writes the dashboard as it was between two times.
func draw(w io.Writer, d promtest.Dashboard, prom *promtest.Prometheus, from, to time.Time, step time.Duration) error {
	v := view{prom, from, to, step}
	height, panels := 0, []panel{}
	for _, p := range d.Panels {
		q := panel{Panel: p, X: p.GridPos.X * column, Y: p.GridPos.Y * line, W: p.GridPos.W*column - 8, H: p.GridPos.H*line - 8}
		if height = max(height, q.Y+q.H); p.Type != "row" {
			if err := v.fill(&q, d.Annotations.List); err != nil {
				return err
			}
		}
		panels = append(panels, q)
	}
	return page.Execute(w, map[string]any{"Title": d.Title, "Height": height, "Panels": panels, "Left": left, "Under": under})
}

// evaluate returns the values of a query, of a rate over four scrapes, as Grafana has it.
func (v view) evaluate(q promtest.Target) (promql.Matrix, error) {
	return v.prom.Evaluate(promtest.Fill(q.Expr, fmt.Sprintf("%dms", 4*v.step.Milliseconds())), v.from, v.to, v.step)
}

// fill evaluates a panel.
func (v view) fill(p *panel, marked []promtest.Target) error {
	most, names, all := 0.0, []string{}, [][]promql.FPoint{}
	for _, q := range p.Targets {
		m, err := v.evaluate(q)
		if err != nil {
			return err
		}
		for _, s := range m {
			points := slices.DeleteFunc(s.Floats, func(x promql.FPoint) bool { return math.IsNaN(x.F) || math.IsInf(x.F, 0) })
			if len(points) == 0 {
				continue
			}
			all = append(all, points)
			names = append(names, legend.ReplaceAllStringFunc(q.LegendFormat, func(l string) string { return s.Metric.Get(strings.Trim(l, "{} ")) }))
			for _, x := range points {
				most = max(most, x.F)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	unit := p.FieldConfig.Defaults.Unit
	if p.Type == "stat" {
		last := all[0][len(all[0])-1].F
		if p.FieldConfig.Defaults.Decimals != nil {
			last = math.Round(last)
		}
		p.Value = text(last, unit)
		for _, s := range p.FieldConfig.Defaults.Thresholds.Steps {
			if last >= s.Value {
				p.Color = named[s.Color]
			}
		}
		return nil
	}
	width, height := float64(p.W-left-30), float64(p.H-under-40)
	top, each := scale(most)
	if p.FieldConfig.Defaults.Decimals != nil && each < 1 {
		top, each = max(math.Ceil(most), 1), 1
	}
	for y := 0.0; y <= top*1.001; y += each {
		p.Rows = append(p.Rows, mark{Y: height - y/top*height, W: width, Text: text(y, unit)})
	}
	x := func(at time.Time) float64 {
		return width * float64(at.Sub(v.from)) / float64(v.to.Sub(v.from))
	}
	for i := range 6 {
		at := v.from.Add(v.to.Sub(v.from) / 5 * time.Duration(i))
		p.Cols = append(p.Cols, mark{X: x(at), H: height, Text: at.Format("15:04:05")})
	}
	for i, points := range all {
		s := series{Name: names[i], Color: p.color(names[i], i)}
		before := int64(0)
		for _, at := range points {
			letter := "L"
			if at.T-before > v.step.Milliseconds()*3/2 { // nothing between them
				letter = "M"
			}
			before = at.T
			s.Points += fmt.Sprintf("%s%.1f %.1f", letter, x(time.UnixMilli(at.T)), height-at.F/top*height)
		}
		p.Lines = append(p.Lines, s)
	}
	for _, q := range marked {
		m, err := v.evaluate(q)
		if err != nil {
			return err
		}
		for _, s := range m {
			for _, at := range s.Floats {
				if at.F != 0 {
					p.Marks = append(p.Marks, mark{X: x(time.UnixMilli(at.T)), W: width * float64(v.step) / float64(v.to.Sub(v.from)), H: height})
				}
			}
		}
	}
	return nil
}

var legend = regexp.MustCompile(`\{\{[^}]*\}\}`)

// color returns what the dashboard gives a line, or one of those that nothing has.
func (p *panel) color(name string, i int) string {
	for _, o := range p.FieldConfig.Overrides {
		for _, is := range o.Properties {
			if o.Matcher.ID == "byName" && o.Matcher.Options == name && is.ID == "color" {
				return named[is.Value.FixedColor]
			}
		}
	}
	return colors[i%len(colors)]
}

// scale returns a round number that is no less than most, and a step to it.
func scale(most float64) (top, step float64) {
	if most <= 0 {
		return 1, 0.5
	}
	step = math.Pow(10, math.Floor(math.Log10(most)))
	for _, part := range []float64{0.2, 0.5, 1, 2} {
		if s := step * part; most/s <= 5 {
			return math.Ceil(most/s-1e-9) * s, s
		}
	}
	return most, most
}

// text writes a number in a unit of Grafana.
func text(x float64, unit string) string {
	short := func(x float64) string {
		switch {
		case x >= 1e6:
			return fmt.Sprintf("%.4gM", x/1e6)
		case x >= 1e3:
			return fmt.Sprintf("%.4gK", x/1e3)
		}
		return fmt.Sprintf("%.3g", x)
	}
	switch {
	case x == 0 && unit != "percentunit":
		return "0"
	case unit == "percentunit":
		return fmt.Sprintf("%.3g%%", 100*x)
	case unit == "s" && x < 1e-3:
		return fmt.Sprintf("%.3g µs", x*1e6)
	case unit == "s" && x < 1:
		return fmt.Sprintf("%.3g ms", x*1e3)
	case unit == "s" && x >= 120:
		return fmt.Sprintf("%.3g min", x/60)
	case unit == "s":
		return fmt.Sprintf("%.3g s", x)
	}
	return short(x)
}

var page = template.Must(template.New("").Parse(`<!DOCTYPE html>
<meta charset="utf-8"><title>{{.Title}}</title>
<style>
body { margin: 8px; font: 12px sans-serif; color: #222; background: #f4f5f5 }
#all { position: relative; width: 1440px; height: {{.Height}}px }
.panel { position: absolute; background: #fff; border: 1px solid #ddd; box-sizing: border-box; overflow: hidden }
.row { position: absolute; font-weight: bold; padding-top: 6px }
h2 { font-size: 13px; margin: 6px 8px 4px }
small { font-weight: normal; color: #777 }
.legend { position: absolute; bottom: 4px; left: 8px; right: 4px; line-height: 13px; font-size: 11px }
.legend b { display: inline-block; width: 12px; height: 3px; margin: 0 4px 3px 8px }
.value { font-size: 28px; text-align: center; padding: 20px; margin: 0 8px; color: #fff }
.none { text-align: center; color: #888; padding-top: 60px }
text { font: 10px sans-serif; fill: #555 }
</style>
<div id="all">{{$left := .Left}}
{{range .Panels}}{{if eq .Type "row"}}<div class="row" style="left:{{.X}}px;top:{{.Y}}px">{{.Title}}</div>
{{else}}<div class="panel" id="panel-{{.ID}}" style="left:{{.X}}px;top:{{.Y}}px;width:{{.W}}px;height:{{.H}}px"><h2>{{.Title}} <small>{{.FieldConfig.Defaults.Custom.AxisLabel}}</small></h2>
{{if .Value}}<div class="value" style="background:{{.Color}}">{{.Value}}</div>
{{else if .Lines}}<svg width="{{.W}}" height="{{.H}}"><g transform="translate({{$left}},6)">
{{range .Marks}}<rect x="{{.X}}" y="0" width="{{.W}}" height="{{.H}}" fill="#d62728" fill-opacity="0.12"/>
{{end}}{{range .Rows}}<line x1="0" x2="{{.W}}" y1="{{.Y}}" y2="{{.Y}}" stroke="#ddd"/><text x="-4" y="{{.Y}}" dy="3" text-anchor="end">{{.Text}}</text>
{{end}}{{range .Cols}}<line x1="{{.X}}" x2="{{.X}}" y1="0" y2="{{.H}}" stroke="#eee"/><text x="{{.X}}" y="{{.H}}" dy="12" text-anchor="middle">{{.Text}}</text>
{{end}}{{range .Lines}}<path d="{{.Points}}" fill="none" stroke="{{.Color}}" stroke-width="1.5"/>
{{end}}</g></svg>
<div class="legend">{{range .Lines}}<b style="background:{{.Color}}"></b>{{.Name}}{{end}}</div>
{{else}}<div class="none">no data</div>{{end}}</div>
{{end}}{{end}}</div>
`))
