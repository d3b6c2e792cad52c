package deploytest

import (
	"encoding/json"
	"net"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
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

// serves reports whether a service of compose.yaml listens at a port of its container. What a
// service listens at is published, too.
func serves(p *types.Project, at string) bool {
	host, port, err := net.SplitHostPort(at)
	return err == nil && slices.Contains(targets(p.Services[host]), port)
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

// datasources and providers are what is used of the provisioning of Grafana.
type datasources struct {
	APIVersion  int `yaml:"apiVersion"`
	Datasources []struct {
		Name, UID, Type, Access, URL string
		IsDefault                    bool `yaml:"isDefault"`
		Editable                     bool
		JSONData                     struct {
			TimeInterval string `yaml:"timeInterval"`
		} `yaml:"jsonData"`
	}
}

type providers struct {
	APIVersion int `yaml:"apiVersion"`
	Providers  []struct {
		Name, Type     string
		AllowUIUpdates bool `yaml:"allowUiUpdates"`
		Options        struct{ Path string }
	}
}

// provisioning is where Grafana looks.
const provisioning = "/etc/grafana/provisioning"

func TestGrafanaDatasource(t *testing.T) {
	p := readProject(t, nil)
	s := p.Services["grafana"]
	var d datasources
	strict(t, "deploy/grafana/datasources.yaml", &d)
	if inHost(s, provisioning+"/datasources/hybridlimit.yaml") != absolute(t, filepath.Join(files, "grafana/datasources.yaml")) {
		t.Errorf("Grafana mounts %+v", s.Volumes)
	}
	if len(d.Datasources) != 1 || d.APIVersion != 1 {
		t.Fatalf("%+v", d)
	}
	from := d.Datasources[0]
	at, err := url.Parse(from.URL)
	if err != nil || at.Scheme != "http" || !serves(p, at.Host) || at.Hostname() != "prometheus" || from.Access != "proxy" {
		t.Errorf("it asks %s: %v", from.URL, err)
	}
	var c prometheus
	if strict(t, "deploy/prometheus.yaml", &c); from.JSONData.TimeInterval != c.Global.ScrapeInterval {
		t.Errorf("Grafana expects values each %s, and they come each %s", from.JSONData.TimeInterval, c.Global.ScrapeInterval)
	}
	// The dashboard has a variable for it, which begins with the default one of its type.
	var board any
	if err := json.Unmarshal([]byte(read(t, "adapter/promlimit/dashboard.json")), &board); err != nil {
		t.Fatal(err)
	}
	var variables, uses []map[string]any
	walk(board, func(o map[string]any) {
		if o["type"] == "datasource" && o["query"] != nil {
			variables = append(variables, o)
		}
		if source, ok := o["datasource"].(map[string]any); ok {
			uses = append(uses, source)
		}
	})
	if len(variables) != 1 || variables[0]["query"] != from.Type || !from.IsDefault {
		t.Errorf("the dashboard asks for %v, and there is %+v", variables, from)
	}
	for _, u := range uses {
		if u["type"] != from.Type || u["uid"] != from.UID && u["uid"] != "${"+variables[0]["name"].(string)+"}" {
			t.Errorf("a panel asks %v", u)
		}
	}
	if len(uses) < 10 {
		t.Errorf("%d panels ask", len(uses))
	}
}

// walk calls f for each object of JSON.
func walk(v any, f func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		f(v)
		for _, v := range v {
			walk(v, f)
		}
	case []any:
		for _, v := range v {
			walk(v, f)
		}
	}
}

func TestGrafanaDashboard(t *testing.T) {
	s := readProject(t, nil).Services["grafana"]
	var d providers
	strict(t, "deploy/grafana/dashboards.yaml", &d)
	if inHost(s, provisioning+"/dashboards/hybridlimit.yaml") != absolute(t, filepath.Join(files, "grafana/dashboards.yaml")) || d.APIVersion != 1 || len(d.Providers) != 1 || d.Providers[0].Type != "file" {
		t.Fatalf("%+v", d)
	}
	home := *s.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	if path.Dir(home) != d.Providers[0].Options.Path || inHost(s, home) != absolute(t, filepath.Join(root, "adapter/promlimit/dashboard.json")) {
		t.Errorf("dashboards are in %s, and the first one is %s", d.Providers[0].Options.Path, home)
	}
	if !mounts(s, "/var/lib/grafana") {
		t.Error("Grafana can write nowhere")
	}
	// Everybody may look, and only from this machine: TestCompose sees to that.
	if anonymous, err := strconv.ParseBool(*s.Environment["GF_AUTH_ANONYMOUS_ENABLED"]); err != nil || anonymous && *s.Environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] != "Viewer" {
		t.Errorf("%v: everybody is %s", err, *s.Environment["GF_AUTH_ANONYMOUS_ORG_ROLE"])
	}
}
