package promlimit_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/adapter/promlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/internal/redistest"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial))
}

var api = limit.Must(limit.SlidingWindow("api", 10, time.Hour))

// register returns a registry with one limiter, called "main".
func register(t *testing.T, lim *hybrid.Limiter) *prometheus.Registry {
	t.Helper()
	reg := prometheus.NewPedanticRegistry() // complains of what does not fit its description
	if err := promlimit.Register(reg, "main", lim); err != nil {
		t.Fatal(err)
	}
	return reg
}

// serve returns the address of a server of metrics.
func serve(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	srv := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// page is what a server of metrics has answered.
type page map[string]*dto.MetricFamily

// scrape asks a server of metrics over a connection, and reads the answer as Prometheus does.
func scrape(url string) (page, error) {
	var client http.Client
	defer client.CloseIdleConnections()
	resp, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s", resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(resp.Body)
}

func mustScrape(t *testing.T, url string) page {
	t.Helper()
	p, err := scrape(url)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// value returns the value of the series of the limiter "main" with these further labels.
func (p page) value(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	want := map[string]string{"limiter": "main"}
	for i := 0; i < len(labels); i += 2 {
		want[labels[i]] = labels[i+1]
	}
	for _, m := range p[name].GetMetric() {
		if len(m.Label) == len(want) && matches(m, want) {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	t.Errorf("there is no %s with %v", name, want)
	return -1
}

func matches(m *dto.Metric, want map[string]string) bool {
	for _, l := range m.Label {
		if want[l.GetName()] != l.GetValue() {
			return false
		}
	}
	return true
}

// What a server of metrics answers over a connection is what the limiter says of itself.
func TestScrape(t *testing.T) {
	h := hybridtest.New(t, hybridtest.Options{})
	lim := h.Limiters[0]
	url := serve(t, register(t, lim))
	want := func(p page, value float64, name string, labels ...string) {
		t.Helper()
		if got := p.value(t, name, labels...); got != value {
			t.Errorf("%s%v is %v, want %v", name, labels, got, value)
		}
	}
	for range 15 {
		lim.Allow("k", api)
	}
	lim.AllowN("k", api, -1)
	lim.Allow("k", nil)
	inside.Of(lim).CountExempt("api")
	login := limit.Must(limit.SlidingWindow("login", 1, time.Hour)).Exact()
	for _, want := range []bool{true, false} {
		if res, err := lim.TakeExact(t.Context(), limit.Check{Key: "new", Rule: login}); err != nil || res.Allowed != want {
			t.Errorf("%+v, %v", res, err)
		}
	}
	h.Sync()
	p := mustScrape(t, url)
	s := inside.Of(lim).Figures()
	want(p, float64(s.Allowed.Synced+s.Allowed.Unsynced+s.Allowed.Remote), "hybridlimit_admitted_units_total")
	if got := p.value(t, "hybridlimit_decisions_total", "rule", "api", "outcome", "allowed", "source", "synced") +
		p.value(t, "hybridlimit_decisions_total", "rule", "api", "outcome", "allowed", "source", "unsynced"); got != 10 {
		t.Errorf("%v admitted by api, want 10", got)
	}
	want(p, 1, "hybridlimit_invalid_checks_total", "rule", "api")
	want(p, 1, "hybridlimit_invalid_checks_total", "rule", "other")
	want(p, 1, "hybridlimit_exempt_checks_total", "rule", "api")
	want(p, 11, "hybridlimit_booked_units_total")
	want(p, 1, "hybridlimit_decisions_total", "rule", "login", "outcome", "allowed", "source", "remote")
	want(p, 1, "hybridlimit_mode", "mode", "synced")
	if got := p.value(t, "hybridlimit_exchange_duration_seconds"); got < 2 {
		t.Errorf("%v exchanges", got)
	}
}

// Names of rules may be any bytes and as many as you like; labels are not.
func TestRuleNames(t *testing.T) {
	lim := hybridtest.New(t, hybridtest.Options{}).Limiters[0]
	names := []string{"other", "\xff", `\xff`, "a\xc3", "new\nline", `"quoted"`, "größe", "a\x00b", strings.Repeat("\xfe", arith.MaxNameBytes)}
	for i := range 1200 {
		names = append(names, fmt.Sprint("made up ", i))
	}
	for _, name := range names {
		lim.Allow("k", limit.Must(limit.FixedWindow(name, 10, time.Hour)))
	}
	p := mustScrape(t, serve(t, register(t, lim)))
	sum := map[string]float64{}
	for _, m := range p["hybridlimit_decisions_total"].GetMetric() {
		for _, l := range m.Label {
			if l.GetName() == "rule" {
				sum[l.GetValue()] += m.GetCounter().GetValue()
			}
			if len(l.GetValue()) > 4*arith.MaxNameBytes {
				t.Errorf("a label of %d bytes", len(l.GetValue()))
			}
		}
	}
	if len(sum) != 1000-1 {
		t.Errorf("%d labels", len(sum))
	}
	for label, want := range map[string]float64{
		"other": 1 + float64(len(names)) - 1000, `\xff`: 2, `a\xc3`: 1, "new\nline": 1, `"quoted"`: 1, "größe": 1, "a\x00b": 1,
		strings.Repeat(`\xfe`, arith.MaxNameBytes): 1, "made up 0": 1, "made up 1199": 0,
	} {
		if sum[label] != want {
			t.Errorf("%q: %v decisions, want %v", label, sum[label], want)
		}
	}
}

// A limiter that has ended says so, and keeps its figures.
func TestEndedLimiter(t *testing.T) {
	lim := hybridtest.New(t, hybridtest.Options{}).Limiters[0]
	url := serve(t, register(t, lim))
	lim.Allow("k", api)
	if err := lim.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	lim.Allow("k", api)
	p := mustScrape(t, url)
	if p.value(t, "hybridlimit_mode", "mode", "closed") != 1 || p.value(t, "hybridlimit_admitted_units_total") != 2 {
		t.Errorf("%v", p["hybridlimit_mode"])
	}
	zero := mustScrape(t, serve(t, register(t, new(hybrid.Limiter))))
	if zero.value(t, "hybridlimit_admitted_units_total") != 0 {
		t.Error("a limiter that was never made has admitted")
	}
}

// Several limiters of one process are told apart by their names; a name that is taken, or
// none, is refused with the reason.
func TestNames(t *testing.T) {
	limiters := hybridtest.New(t, hybridtest.Options{Limiters: 2}).Limiters
	reg := register(t, limiters[0])
	if err := promlimit.Register(reg, "second", limiters[1]); err != nil {
		t.Fatal(err)
	}
	limiters[1].Allow("k", api)
	p := mustScrape(t, serve(t, reg))
	if n := len(p["hybridlimit_admitted_units_total"].GetMetric()); n != 2 || p.value(t, "hybridlimit_admitted_units_total") != 0 {
		t.Errorf("%v", p["hybridlimit_admitted_units_total"])
	}
	err := promlimit.Register(reg, "main", limiters[1])
	if !errors.As(err, new(prometheus.AlreadyRegisteredError)) || !strings.Contains(err.Error(), `"main" is registered already`) {
		t.Errorf("%v", err)
	}
	for _, bad := range []struct {
		reg  prometheus.Registerer
		name string
		lim  *hybrid.Limiter
		want string
	}{
		{reg, "", limiters[0], "must be 1 to 128 bytes"}, {reg, "\xff", limiters[0], "UTF-8"},
		{reg, strings.Repeat("n", 129), limiters[0], "128"}, {reg, "third", nil, "limiter is nil"}, {nil, "third", limiters[0], "registerer is nil"},
	} {
		if err := promlimit.Register(bad.reg, bad.name, bad.lim); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%q: %v, want %q", bad.name, err, bad.want)
		}
	}
}
