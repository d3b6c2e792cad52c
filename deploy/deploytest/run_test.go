package deploytest

import (
	"encoding/json"
	"net"
	"os/exec"
	"slices"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
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
	loads := startLoads(t, p, running)
	for _, server := range running {
		until(t, server, "it is asked more than the rule allows", func() bool { return decides(t, server, "demo") })
	}
	for _, load := range loads {
		_ = load.cmd.Process.Kill() // as long as it runs it asks
		<-load.ended
	}
	for _, server := range running {
		server.stop(t)
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
