package ops

import (
	"encoding/json"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// Ready is the body of /readyz.
type Ready struct {
	Ready bool `json:"ready"`
	// Why says why it is not ready.
	Why string `json:"why,omitempty"`
	// Mode, Reason and NoticesDown are those of the limiter, see hybrid.State. Degraded is ready.
	Mode        string `json:"mode"`
	Reason      string `json:"reason,omitempty"`
	NoticesDown string `json:"notices_down,omitempty"`
	// Rules and Descriptors is how many are in force, and RulesError why the rules file as it
	// is now is not.
	Rules       int    `json:"rules"`
	Descriptors int    `json:"descriptors"`
	RulesError  string `json:"rules_error,omitempty"`
}

// Check returns how a server is.
func Check(lim *hybrid.Limiter, file *rules.File, stopping bool) Ready {
	state, stats := lim.State(), file.Stats()
	r := Ready{
		Ready: true, Mode: state.Mode.String(), Reason: state.Reason, NoticesDown: state.NoticesDown,
		Rules: stats.Size.Rules, Descriptors: stats.Size.Descriptors, RulesError: stats.LastError,
	}
	if stopping {
		r.Ready, r.Why = false, "stopping"
	}
	return r
}

// here says what a server answers.
const here = `hybridlimit serve, for operators:
/admin/   a page for people: the state, the rules, and with --admin-keys the keys
/metrics  for Prometheus
/readyz   whether it should get traffic, as JSON
/healthz  whether it answers
`

// Handler answers the paths of this package.
func Handler(ready func() Ready, metrics prometheus.Gatherer, page http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(here)) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		body := ready()
		w.Header().Set("Content-Type", "application/json")
		if !body.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(body)
	})
	mux.Handle("/admin/", page)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return mux
}
