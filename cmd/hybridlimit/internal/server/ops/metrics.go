package ops

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/resp"
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/rls"
)

// Metrics collects the figures of the rules file and of the servers. A server that is nil is
// left out. The limiter's own are those of adapter/promlimit.
type Metrics struct {
	File *rules.File
	RESP *resp.Server
	RLS  *rls.Service
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("hybridlimit_"+name, help, labels, nil)
}

var (
	rulesLoads   = desc("rules_loads_total", "Rules files that came into force.")
	rulesRefused = desc("rules_refused_total", "Rules files that were refused, or could not be read.")
	rulesBad     = desc("rules_bad", "1 if the rules file as it is now is not in force.")
	rulesLoaded  = desc("rules_loaded_timestamp_seconds", "When the rules in force were loaded.")
	rulesCount   = desc("rules_entries", "Entries of the rules file in force by kind: rule, plan, override, descriptor.", "kind")

	respConns    = desc("resp_connections", "Connections of Redis clients.")
	respCommands = desc("resp_commands_total", "Commands of Redis clients by outcome.", "outcome")
	respEnded    = desc("resp_connections_refused_total", "Connections of Redis clients that were ended by the server.", "reason")
	respIdle     = desc("resp_connections_idle_total", "Connections of Redis clients that were ended because nothing went over them.")

	rlsRequests = desc("rls_requests_total", "Requests of the rate limit service by outcome.", "outcome")
)

// Describe sends what Collect can send.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{rulesLoads, rulesRefused, rulesBad, rulesLoaded, rulesCount, respConns, respCommands, respEnded, respIdle, rlsRequests} {
		out <- d
	}
}

// Collect sends the figures as they are now.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		send(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) { send(d, prometheus.GaugeValue, v, labels...) }

	file := m.File.Stats()
	counter(rulesLoads, file.Loads)
	counter(rulesRefused, file.Failures)
	bad := 0.0
	if file.LastError != "" {
		bad = 1
	}
	gauge(rulesBad, bad)
	gauge(rulesLoaded, float64(file.LastLoad.UnixMilli())/1000)
	gauge(rulesCount, float64(file.Size.Rules), "rule")
	gauge(rulesCount, float64(file.Size.Plans), "plan")
	gauge(rulesCount, float64(file.Size.Overrides), "override")
	gauge(rulesCount, float64(file.Size.Descriptors), "descriptor")

	if m.RESP != nil {
		s := m.RESP.Stats()
		gauge(respConns, float64(s.Conns))
		counter(respCommands, s.Commands-s.Refused-s.Errors, "ok")
		counter(respCommands, s.Refused, "refused")
		counter(respCommands, s.Errors, "error")
		counter(respEnded, s.Protocol, "protocol")
		counter(respEnded, s.TurnedAway, "too_many")
		counter(respIdle, s.Idle)
	}
	if m.RLS != nil {
		s := m.RLS.Stats()
		counter(rlsRequests, s.Requests-s.Refused-s.Shadowed, "ok")
		counter(rlsRequests, s.Refused, "over_limit")
		counter(rlsRequests, s.Shadowed, "shadowed")
		counter(rlsRequests, s.Invalid, "invalid")
		counter(rlsRequests, s.Undecided, "undecided")
	}
}
