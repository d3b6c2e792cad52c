package promtest

import (
	"math"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/adapter/internal/figures"
)

// Each metric of a limiter is on the dashboard, or it says here why not.
func TestDashboardHasEachMetric(t *testing.T) {
	d, err := ReadDashboard("../dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	asked := ""
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			asked += q.Expr + "\n"
		}
	}
	elsewhere := map[string]string{
		"hybridlimit_exchange_last_seconds": "the histogram has it, of more than one exchange",
		"hybridlimit_exchange_max_seconds":  "the histogram has it, by time",
		"hybridlimit_quarantines_total":     "the panel has how many keys are set aside now",

		"hybridlimit_overflow_decisions_total": "the units that are lost by it are there",
		"hybridlimit_remembered_keys":          "the keys that are forgotten are there, and the page has how many are remembered",
		"hybridlimit_unreturned_units":         "refunds that are not given back are asked for by single callers",
	}
	for _, m := range figures.Metrics() {
		on := strings.Contains(asked, m.Name+"{")
		if why := elsewhere[m.Name]; on == (why != "") {
			t.Errorf("%s: on the dashboard: %v, and here: %q", m.Name, on, why)
		}
	}
}

// Each query of the dashboard finds data in what the collector answers while there is traffic
// and an outage, and each panel has its place.
func TestDashboard(t *testing.T) {
	d, err := ReadDashboard("../dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	ids, places, queries := map[int]bool{}, map[[2]int]string{}, 0
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: two panels have the number %d", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := places[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies over %q or outside", p.Title, other)
				}
				places[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Description == "" || p.FieldConfig.Defaults.Unit == "" {
			t.Errorf("%s: %+v", p.Title, p)
		}
		for _, q := range p.Targets {
			queries++
			expr := Fill(q.Expr, "1m")
			if strings.Contains(expr, "$") {
				t.Errorf("%s: unknown variable in %s", p.Title, expr)
				continue
			}
			w.checkNames(t, p.Title, expr)
			numbers := 0
			expr = strings.TrimSuffix(expr, " > 0") // there is no line where nothing was counted
			for _, s := range w.evaluate(t, expr) {
				for _, point := range s.Floats {
					if !math.IsNaN(point.F) && !math.IsInf(point.F, 0) {
						numbers++
					}
				}
			}
			if numbers == 0 {
				t.Errorf("%s: no data for %s", p.Title, expr)
			}
		}
	}
	if queries < 30 {
		t.Errorf("%d queries", queries)
	}
}
