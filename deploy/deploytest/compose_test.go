package deploytest

import (
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// readProject loads compose.yaml as Compose does, with nothing else in the environment.
func readProject(t *testing.T, env types.Mapping) *types.Project {
	t.Helper()
	p, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  absolute(t, files),
		ConfigFiles: []types.ConfigFile{{Filename: absolute(t, filepath.Join(files, "compose.yaml"))}},
		Environment: env,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// servers returns the services that are ours.
func servers(t *testing.T, p *types.Project) (list []types.ServiceConfig) {
	t.Helper()
	for _, name := range p.ServiceNames() {
		if s := p.Services[name]; s.Build != nil {
			list = append(list, s)
		}
	}
	if len(list) < 2 {
		t.Fatalf("%d servers share the limits", len(list))
	}
	return list
}

// targets returns the ports of the container that are published, in order.
func targets(s types.ServiceConfig) (ports []string) {
	for _, p := range s.Ports {
		ports = append(ports, strconv.Itoa(int(p.Target)))
	}
	slices.Sort(ports)
	return ports
}

func TestCompose(t *testing.T) {
	p := readProject(t, nil)
	published := map[string]string{}
	for name, s := range p.Services {
		if !tag.MatchString(s.Image) && s.Build == nil || strings.HasSuffix(s.Image, ":latest") || !strings.Contains(s.Image, ":") {
			t.Errorf("%s: image %s", name, s.Image)
		}
		if s.Build != nil {
			if absolute(t, s.Build.Context) != absolute(t, root) || filepath.Join(s.Build.Context, s.Build.Dockerfile) != absolute(t, filepath.Join(files, "Dockerfile")) {
				t.Errorf("%s: %+v", name, s.Build)
			}
		}
		if !s.ReadOnly || s.Privileged || !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.CapAdd) > 0 || !slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) {
			t.Errorf("%s may do more than it needs", name)
		}
		for _, port := range s.Ports {
			if net.ParseIP(port.HostIP) == nil || !net.ParseIP(port.HostIP).IsLoopback() {
				t.Errorf("%s: others can reach port %s of %q", name, port.Published, port.HostIP)
			}
			if other, taken := published[port.Published]; taken {
				t.Errorf("%s and %s have the port %s", name, other, port.Published)
			}
			published[port.Published] = name
		}
		for on, d := range s.DependsOn {
			other := p.Services[on]
			if d.Condition != types.ServiceConditionHealthy || other.HealthCheck == nil {
				t.Errorf("%s starts after %s: %s", name, on, d.Condition)
			}
		}
		for _, v := range s.Volumes {
			// Docker would make a directory of what is not there.
			if _, err := os.Stat(v.Source); v.Type == types.VolumeTypeBind && (err != nil || !v.ReadOnly) {
				t.Errorf("%s mounts %+v: %v", name, v, err)
			}
		}
		// The loads serve nobody.
		if load := len(s.Ports) == 0 && name != "redis"; !load && (s.HealthCheck == nil || s.HealthCheck.Test[0] != "CMD" || s.HealthCheck.Disable) {
			t.Errorf("%s: %+v", name, s.HealthCheck)
		} else if load && len(s.DependsOn) == 0 {
			t.Errorf("%s waits for nothing", name)
		}
	}
}

// inHost returns the file of ours that a path of a container is, or nothing.
func inHost(s types.ServiceConfig, at string) string {
	for _, v := range s.Volumes {
		if v.Type != types.VolumeTypeBind {
			continue
		}
		if at == v.Target {
			return v.Source
		}
		if rest, below := strings.CutPrefix(at, v.Target+"/"); below {
			return filepath.Join(v.Source, rest)
		}
	}
	return ""
}

// A password that is set replaces that of the demo everywhere.
func TestComposeEnvironment(t *testing.T) {
	const demo = "onlyForADemo"
	for _, env := range []types.Mapping{nil, {"REDIS_PASSWORD": "one", "GRAFANA_PASSWORD": "two"}} {
		p := readProject(t, env)
		p.Extensions = nil // what services have been merged from
		text, err := p.MarshalYAML()
		if err != nil {
			t.Fatal(err)
		}
		// In Redis its two users and redis-cli, in each server, and in Grafana.
		want := 3 + len(servers(t, p)) + 1
		if n := strings.Count(string(text), demo); env == nil && n != want || env != nil && n != 0 {
			t.Errorf("with %v the password of the demo stands at %d places, want %d", env, n, want)
		}
	}
}

// The servers and their Redis fit to each other, and to what is said of them.
func TestComposeServers(t *testing.T) {
	p := readProject(t, nil)
	program := build(t)
	list := servers(t, p)
	for _, s := range list {
		set := flags(t, s.Command)
		var ports []string
		for _, name := range []string{"--check", "--grpc", "--http", "--resp"} {
			host, port, err := net.SplitHostPort(set[name])
			if err != nil || host != "0.0.0.0" { // a container is reached from outside of it
				t.Errorf("%s=%s", name, set[name])
			}
			ports = append(ports, port)
		}
		if slices.Sort(ports); !slices.Equal(ports, targets(s)) {
			t.Errorf("%s listens at %q, and %q are published", s.Name, ports, targets(s))
		}
		if n := set["--expected-nodes"]; n != strconv.Itoa(len(list)) {
			t.Errorf("%s expects %s nodes of %d", s.Name, n, len(list))
		}
		stop, err := time.ParseDuration(set["--stop-timeout"])
		if grace := time.Duration(*s.StopGracePeriod); err != nil || grace < stop+2*time.Second {
			t.Errorf("%s is killed after %v, and may need %v: %v", s.Name, grace, stop, err)
		}
		if url := *s.Environment["HYBRIDLIMIT_REDIS"]; !strings.Contains(url, "@redis:6379/") {
			t.Errorf("%s asks %s", s.Name, url)
		}
		file := inHost(s, set["--rules"])
		if out, err := exec.Command(program, "validate", "--for", "serve", file).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		// An editor replaces the file; a mount of the file itself would keep the old one.
		if path.Base(file) == path.Base(s.Volumes[0].Source) {
			t.Errorf("%s mounts the file %s, and not its directory", s.Name, file)
		}
	}
}
