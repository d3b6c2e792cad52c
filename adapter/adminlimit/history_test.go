package adminlimit

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Ten minutes are kept, whatever comes, and they are those of the differences.
func TestTenMinutesAreKept(t *testing.T) {
	h := &history{}
	var is inside.Figures
	for i := range 2*samples + 7 {
		is.Allowed.Synced += uint64(i)
		is.Failures++
		h.add(is, hybrid.Synced)
	}
	list := h.all()
	if len(list) != samples || list[0].Admitted != samples+7 || list[samples-1].Admitted != 2*samples+6 || list[9].Failures != 1 {
		t.Errorf("%d samples, from %+v to %+v", len(list), list[0], list[len(list)-1])
	}
	is.Allowed.Synced -= 5 // the figures are read one after another
	h.add(is, hybrid.Degraded)
	if last := h.all()[samples-1]; last.Admitted != 0 || last.Mode != "degraded" {
		t.Errorf("%+v", last)
	}
}

// The goroutine ends with the limiter, and with the page.
func TestSamplingEnds(t *testing.T) {
	for name, end := range map[string]func(*hybrid.Limiter, *history){
		"limiter": func(lim *hybrid.Limiter, _ *history) { _ = lim.Close() },
		"page":    func(_ *hybrid.Limiter, h *history) { h.close(); h.close() },
	} {
		synctest.Test(t, func(t *testing.T) {
			lim := limit.Must(hybrid.New(nil, hybrid.Options{}))
			defer lim.Close()
			h := startHistory(lim)
			defer h.close()
			time.Sleep(5*time.Second + time.Millisecond)
			synctest.Wait()
			if n := len(h.all()); n != 5 {
				t.Errorf("%d samples in 5 s", n)
			}
			end(lim, h)
			time.Sleep(time.Second)
			select {
			case <-h.done:
			default:
				t.Errorf("the sampling goes on after the end of the %s", name)
			}
		})
	}
}

// A plot has a point for each second, within its frame, and shows when the limiter was not synced.
func TestPlots(t *testing.T) {
	var list []sample
	for i := range 100 {
		s := sample{Mode: "synced", Admitted: uint64(i), Refused: 1, Exchange: 0.00125}
		if i >= 40 && i < 60 {
			s.Mode = "degraded"
		}
		list = append(list, s)
	}
	plots := plotsOf(list)
	p := plots[0]
	if p.Top != "99" || len(p.Lines) != 2 || len(strings.Fields(p.Lines[0].Points)) != 100 || !strings.HasPrefix(p.Lines[0].Points, "500,80 501,79.2 ") || !strings.HasSuffix(p.Lines[0].Points, "599,2") {
		t.Errorf("%+v", p)
	}
	if len(p.Bands) != 1 || p.Bands[0] != (band{540, 20, "degraded", "degraded"}) {
		t.Errorf("%+v", p.Bands)
	}
	if plots[2].Top != "1.25 ms" || !strings.Contains(p.Summary, "at most 99 in the last ten minutes; now admitted 99, refused 1") {
		t.Errorf("%q, %q", plots[2].Top, p.Summary)
	}
	for _, p := range plotsOf(nil) {
		if p.Lines[0].Points != "" || p.Top != "0" && p.Top != "0 ms" {
			t.Errorf("without samples: %+v", p)
		}
	}
}

// A few look-ups at once, and then one each fifth of a second.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		count := func() (n int) {
			for range 100 {
				if g.pass() {
					n++
				}
			}
			return n
		}
		if n := count(); n != gateBurst {
			t.Errorf("%d at once", n)
		}
		time.Sleep(3 * gateEvery)
		if n := count(); n != 3 {
			t.Errorf("%d after three times %v", n, gateEvery)
		}
		time.Sleep(time.Hour)
		if n := count(); n != gateBurst {
			t.Errorf("%d at once, later", n)
		}
	})
}

// A few seconds far above all others do not flatten a plot: they are cut off, and their figure is said.
func TestScaleOfAPlot(t *testing.T) {
	spiky := make([]sample, samples)
	for i := range spiky {
		spiky[i].Exchange = 0.002
	}
	spiky[300].Exchange = 9.962
	p := plotsOf(spiky)[2]
	if p.Top != "6 ms" || p.Peak != "9962 ms" || !strings.Contains(p.Summary, "at most 9962 ms in the last ten minutes") {
		t.Errorf("scale %s, peak %s, %s", p.Top, p.Peak, p.Summary)
	}
	if points := strings.Fields(p.Lines[0].Points); points[300] != "300,2" || points[299] != "299,54" {
		t.Errorf("a spike is at %s, beside %s", points[300], points[299])
	}
	for i := range spiky { // a step is no spike
		spiky[i].Exchange = 0.002
		if i > 500 {
			spiky[i].Exchange = 0.1
		}
	}
	if p := plotsOf(spiky)[2]; p.Top != "100 ms" || p.Peak != "" {
		t.Errorf("scale %s, peak %s", p.Top, p.Peak)
	}
}
