package promtest

import (
	"log/slog"
	"testing"

	"github.com/prometheus/prometheus/config"
)

// The configuration of the demo is one of Prometheus. What it names is checked in deploy/deploytest.
func TestDeployed(t *testing.T) {
	c, err := config.LoadFile("../../../deploy/prometheus.yaml", false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := c.GetScrapeConfigs()
	if err != nil || len(jobs) != 1 || jobs[0].MetricsPath != "/metrics" || jobs[0].Scheme != "http" || len(c.RuleFiles) != 1 {
		t.Errorf("%v, and the rules %q, %v", jobs, c.RuleFiles, err)
	}
}
