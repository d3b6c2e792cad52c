package deploytest

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
)

// prometheus is what is used of its configuration.
type prometheus struct {
	Global struct {
		ScrapeInterval     string `yaml:"scrape_interval"`
		EvaluationInterval string `yaml:"evaluation_interval"`
	}
	RuleFiles     []string `yaml:"rule_files"`
	ScrapeConfigs []struct {
		JobName       string                       `yaml:"job_name"`
		StaticConfigs []struct{ Targets []string } `yaml:"static_configs"`
	} `yaml:"scrape_configs"`
}

func TestPrometheus(t *testing.T) {
	p := readProject(t, nil)
	s := p.Services["prometheus"]
	var c prometheus
	strict(t, "deploy/prometheus.yaml", &c)
	if file := flagOf(s.Command, "--config.file"); inHost(s, file) != absolute(t, filepath.Join(files, "prometheus.yaml")) {
		t.Errorf("--config.file=%s", file)
	}
	if dir := flagOf(s.Command, "--storage.tsdb.path"); !mounts(s, dir) {
		t.Errorf("--storage.tsdb.path=%s, where nothing can be written", dir)
	}
	if len(c.RuleFiles) != 1 || inHost(s, c.RuleFiles[0]) != absolute(t, filepath.Join(root, "adapter/promlimit/alerts.yaml")) {
		t.Errorf("rule_files: %q", c.RuleFiles)
	}
	var want, got []string
	for _, server := range servers(t, p) {
		_, port, _ := net.SplitHostPort(flags(t, server.Command)["--http"])
		want = append(want, net.JoinHostPort(server.Name, port))
	}
	for _, job := range c.ScrapeConfigs {
		for _, static := range job.StaticConfigs {
			got = append(got, static.Targets...)
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("it asks %q, and there are %q", got, want)
	}
}

// flagOf returns the value of a flag in a command.
func flagOf(command []string, name string) string {
	for _, arg := range command {
		if value, found := strings.CutPrefix(arg, name+"="); found {
			return value
		}
	}
	return ""
}

// mounts reports whether a service has a volume of its own at a path.
func mounts(s types.ServiceConfig, at string) bool {
	return slices.ContainsFunc(s.Volumes, func(v types.ServiceVolumeConfig) bool { return v.Type == types.VolumeTypeVolume && v.Target == at })
}
