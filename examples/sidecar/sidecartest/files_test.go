package sidecartest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// read returns the text of a file of the example.
func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// strict reads YAML into a type. A field that it does not have is an error.
func strict(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatal(err)
	}
}

// pod is what the manifest starts.
type pod struct {
	deployment appsv1.Deployment
	service    corev1.Service
	spec       corev1.PodSpec
}

func readPod(t *testing.T) (p pod) {
	t.Helper()
	documents := bytes.Split(read(t, "kubernetes.yaml"), []byte("\n---\n"))
	if len(documents) != 2 {
		t.Fatalf("%d documents", len(documents))
	}
	strict(t, documents[0], &p.deployment)
	strict(t, documents[1], &p.service)
	p.spec = p.deployment.Spec.Template.Spec
	return p
}

// container returns a container of the pod, and whether it is a sidecar.
func (p pod) container(t *testing.T, name string) (c corev1.Container, sidecar bool) {
	t.Helper()
	for _, c := range p.spec.InitContainers {
		if c.Name == name {
			return c, c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		}
	}
	for _, c := range p.spec.Containers {
		if c.Name == name {
			return c, false
		}
	}
	t.Fatalf("there is no container %s", name)
	return c, false
}

// flags returns the values of the flags that the limiter is started with.
func (p pod) flags(t *testing.T) map[string]string {
	t.Helper()
	c, _ := p.container(t, "hybridlimit")
	if len(c.Args) == 0 || c.Args[0] != "serve" {
		t.Fatalf("arguments %q", c.Args)
	}
	flags := map[string]string{}
	for _, arg := range c.Args[1:] {
		name, value, given := strings.Cut(arg, "=")
		if !strings.HasPrefix(name, "--") || !given {
			t.Errorf("argument %q", arg)
		}
		flags[name] = value
	}
	return flags
}
