package sidecartest

import (
	"maps"
	"net"
	"path"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// The selectors find the pods.
func TestSelectors(t *testing.T) {
	p, r := readPod(t), readRedis(t)
	for name, c := range map[string]struct {
		deployment appsv1.Deployment
		service    corev1.Service
	}{"the program": {p.deployment, p.service}, "Redis": {r.deployment, r.service}} {
		labels, of := c.deployment.Spec.Template.Labels, c.deployment.Spec.Selector.MatchLabels
		if len(labels) == 0 || !maps.Equal(of, labels) || !maps.Equal(c.service.Spec.Selector, labels) {
			t.Errorf("the pods of %s have %v, which is not what is selected", name, labels)
		}
	}
}

// What a sidecar needs, and what each container is given.
func TestContainers(t *testing.T) {
	p := readPod(t)
	for _, name := range []string{"hybridlimit", "envoy"} {
		c, sidecar := p.container(t, name)
		if !sidecar || c.StartupProbe == nil {
			t.Errorf("%s is no sidecar with a probe for its start", name)
		}
	}
	if len(p.spec.InitContainers) != 2 || p.spec.InitContainers[0].Name != "hybridlimit" {
		t.Error("the limiter does not start first, and so does not end last")
	}
	for _, c := range slices.Concat(p.spec.InitContainers, p.spec.Containers) {
		r := c.Resources
		if r.Requests.Cpu().IsZero() || r.Requests.Memory().IsZero() || r.Limits.Memory().Cmp(*r.Requests.Memory()) < 0 || !r.Limits.Cpu().IsZero() {
			t.Errorf("%s has %+v", c.Name, r)
		}
	}
}

// The volumes are what kustomize makes of the files that are here.
func TestVolumes(t *testing.T) {
	var k struct {
		APIVersion         string   `json:"apiVersion"`
		Kind               string   `json:"kind"`
		Resources          []string `json:"resources"`
		ConfigMapGenerator []struct {
			Name    string   `json:"name"`
			Files   []string `json:"files"`
			Options struct {
				DisableNameSuffixHash bool `json:"disableNameSuffixHash"`
			} `json:"options"`
		} `json:"configMapGenerator"`
	}
	strict(t, read(t, "kustomization.yaml"), &k)
	files := map[string]string{} // by the path in the container
	p := readPod(t)
	for _, c := range slices.Concat(p.spec.InitContainers, p.spec.Containers) {
		for _, m := range c.VolumeMounts {
			at := slices.IndexFunc(p.spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
			if at < 0 || p.spec.Volumes[at].ConfigMap == nil || !m.ReadOnly || m.SubPath != "" {
				t.Fatalf("%s mounts %+v", c.Name, m)
			}
			for _, g := range k.ConfigMapGenerator {
				if g.Name == p.spec.Volumes[at].ConfigMap.Name {
					for _, f := range g.Files {
						read(t, f)
						files[path.Join(m.MountPath, f)] = f
					}
				}
			}
		}
	}
	envoy, _ := p.container(t, "envoy")
	if rules := p.flags(t)["--rules"]; files[rules] != "rules.yaml" || files[envoy.Args[len(envoy.Args)-1]] != "envoy.yaml" || len(k.ConfigMapGenerator) != 2 {
		t.Errorf("the files are %v; the limiter reads %s, Envoy %q", files, rules, envoy.Args)
	}
	for _, g := range k.ConfigMapGenerator {
		// Only the limiter follows its file.
		if g.Options.DisableNameSuffixHash != (g.Name == "rules") {
			t.Errorf("%+v", g)
		}
	}
}

// Who asks finds who answers.
func TestPorts(t *testing.T) {
	p := readPod(t)
	flags := p.flags(t)
	limiter, _ := p.container(t, "hybridlimit")
	_, http, err := net.SplitHostPort(flags["--http"])
	if err != nil || len(limiter.Ports) != 1 || strconv.Itoa(int(limiter.Ports[0].ContainerPort)) != http {
		t.Errorf("--http=%s, and the ports %+v", flags["--http"], limiter.Ports)
	}
	for path, probes := range map[string][]*corev1.Probe{"/healthz": {limiter.StartupProbe, limiter.LivenessProbe}, "/readyz": {limiter.ReadinessProbe}} {
		for _, probe := range probes {
			if probe.HTTPGet.Path != path || probe.HTTPGet.Port.StrVal != limiter.Ports[0].Name {
				t.Errorf("%s: %+v", path, probe.HTTPGet)
			}
		}
	}
	// The program and Envoy ask within the pod, and nobody else can.
	program, _ := p.container(t, "program")
	env := map[string]string{}
	for _, e := range program.Env {
		env[e.Name] = e.Value
	}
	if at := net.JoinHostPort(env["LIMITS_ADDRESS"], env["LIMITS_PORT"]); at != flags["--resp"] {
		t.Errorf("the program asks %s, and --resp=%s", at, flags["--resp"])
	}
	e := readEnvoy(t)
	if at := e.address(t, "hybridlimit"); at != flags["--grpc"] {
		t.Errorf("Envoy asks %s, and --grpc=%s", at, flags["--grpc"])
	}
	for _, name := range []string{"--grpc", "--resp"} {
		if host, _, err := net.SplitHostPort(flags[name]); err != nil || host != "127.0.0.1" {
			t.Errorf("%s=%s", name, flags[name])
		}
	}
	envoy, _ := p.container(t, "envoy")
	port := e.port(t)
	if len(envoy.Ports) != 1 || uint32(envoy.Ports[0].ContainerPort) != port || uint32(p.service.Spec.Ports[0].TargetPort.IntVal) != port {
		t.Errorf("Envoy listens at %d, has %+v, and is sent %+v", port, envoy.Ports, p.service.Spec.Ports)
	}
}

// The pod is given the time that its containers take to end, one after the other.
func TestEnd(t *testing.T) {
	p := readPod(t)
	program, _ := p.container(t, "program")
	stop, err := time.ParseDuration(p.flags(t)["--stop-timeout"])
	if err != nil || program.Lifecycle.PreStop.Sleep.Seconds < 5 {
		t.Fatalf("%v, %+v", err, program.Lifecycle)
	}
	const others = 20 * time.Second // for the program and Envoy
	need := time.Duration(program.Lifecycle.PreStop.Sleep.Seconds)*time.Second + others + stop
	if given := time.Duration(*p.spec.TerminationGracePeriodSeconds) * time.Second; given < need {
		t.Errorf("the pod is killed after %v, and may need %v", given, need)
	}
	if n := p.flags(t)["--expected-nodes"]; n != strconv.Itoa(int(*p.deployment.Spec.Replicas)) {
		t.Errorf("%s nodes are expected of %d replicas", n, *p.deployment.Spec.Replicas)
	}
}
