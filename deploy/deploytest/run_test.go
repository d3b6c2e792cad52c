package deploytest

import (
	"encoding/json"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v4"
)

// TestComposeRuns starts what compose.yaml does, but for Prometheus and Grafana: the commands of
// the containers, with their environments and health checks, as processes on free ports.
func TestComposeRuns(t *testing.T) {
	p := readProject(t, types.Mapping{"REDIS_PASSWORD": "aPasswordThatIsNotTheDefault"})
	program := build(t)
	redis := startRedis(t, p)
	running := map[string]*process{}
	for _, s := range servers(t, p) {
		running[s.Name] = startServer(t, s, program, redis)
	}
	// Until both know of each other, each admits a share alone.
	began := time.Now()
	loads := startLoads(t, p, running)
	const seconds = 5
	for _, load := range loads {
		until(t, load, "it asks", func() bool { return time.Since(began) > seconds*time.Second })
	}
	for _, load := range loads {
		_ = load.cmd.Process.Kill() // as long as it runs it asks
		<-load.ended
	}
	took := time.Since(began).Seconds()
	var all, refusals float64
	for name, server := range running {
		admitted, refused := decided(t, server, "demo")
		if t.Logf("%s: %v admitted, %v refused", name, admitted, refused); admitted == 0 || refused == 0 {
			t.Errorf("%s has admitted %v and refused %v", name, admitted, refused)
		}
		all, refusals = all+admitted, refusals+refused
		server.stop(t)
	}
	// One server alone admits most of this. If they shared nothing, both together would admit
	// twice as much.
	burst, perSecond := rule(t)
	most := burst + perSecond*took
	if all > 1.4*most || all+refusals > 1.5*most && all < 0.6*most {
		t.Errorf("of %v checks %v are admitted in %.1fs, and the limit is %.0f", all+refusals, all, took, most)
	}
}

// startLoads runs the loads of compose.yaml against the servers.
func startLoads(t *testing.T, p *types.Project, running map[string]*process) (loads []*process) {
	t.Helper()
	for _, name := range p.ServiceNames() {
		s := p.Services[name]
		at := slices.Index(s.Command, "-h")
		if at < 0 {
			continue
		}
		server := running[s.Command[at+1]]
		if server == nil || s.Command[at+2] != "-p" || s.Command[at+3] != "6380" || len(s.DependsOn) != 1 {
			t.Fatalf("%s: %q", name, s.Command)
		}
		args := slices.Clone(s.Command)
		args[at+1], args[at+3], _ = net.SplitHostPort(server.at("resp"))
		loads = append(loads, start(t, environment(s), args[0], args[1:]...))
	}
	if len(loads) != len(running) {
		t.Fatalf("%d loads for %d servers", len(loads), len(running))
	}
	return loads
}

// rule returns what the rule of the demo admits at once, and each second.
func rule(t *testing.T) (burst, perSecond float64) {
	t.Helper()
	var file struct {
		Rules map[string]struct {
			Algorithm, Per string
			Limit, Burst   float64
		}
	}
	first, _, _ := strings.Cut(read(t, "deploy/rules/rules.yaml"), "\n---\n")
	if err := yaml.Unmarshal([]byte(first), &file); err != nil {
		t.Fatal(err)
	}
	r := file.Rules["demo"]
	if r.Algorithm != "token-bucket" || r.Per != "1s" || r.Limit <= 0 || r.Burst <= 0 {
		t.Fatalf("%+v", file)
	}
	return r.Burst, r.Limit
}

// The Redis is set up as docs/redis.md says: doctor finds nothing to change in its settings.
func TestComposeRedisSettings(t *testing.T) {
	p := readProject(t, nil)
	program, redis := build(t), startRedis(t, p)
	for _, user := range []string{":", "limiter:"} {
		out, err := exec.Command(program, "doctor", "--json", "--redis=redis://"+user+"onlyForADemo@"+redis).CombinedOutput()
		var report struct {
			Findings []struct{ ID, Severity, What string }
		}
		if e := json.Unmarshal(out, &report); e != nil {
			t.Fatalf("%v, %v: %s", err, e, out)
		}
		for _, f := range report.Findings {
			// What depends on this machine, and on what only an operator may do.
			if !slices.Contains([]string{"latency", "slow-commands", "clock", "clock-jump", "memory", "tools", "plaintext"}, f.ID) {
				t.Errorf("as %q: %s: %s: %s", user, f.ID, f.Severity, f.What)
			}
		}
	}
}
