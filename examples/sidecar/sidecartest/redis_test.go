package sidecartest

import (
	"bytes"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// redis is what redis.yaml makes.
type redis struct {
	secret     corev1.Secret
	deployment appsv1.Deployment
	service    corev1.Service
	container  corev1.Container
}

func readRedis(t *testing.T) (r redis) {
	t.Helper()
	documents := bytes.Split(read(t, "redis.yaml"), []byte("\n---\n"))
	if len(documents) != 3 {
		t.Fatalf("%d documents", len(documents))
	}
	strict(t, documents[0], &r.secret)
	strict(t, documents[1], &r.deployment)
	strict(t, documents[2], &r.service)
	if n := len(r.deployment.Spec.Template.Spec.Containers); n != 1 {
		t.Fatalf("%d containers", n)
	}
	r.container = r.deployment.Spec.Template.Spec.Containers[0]
	return r
}

// value returns what a variable of a container is, which the Secret of redis.yaml holds.
func (r redis) value(t *testing.T, c corev1.Container, name string) string {
	t.Helper()
	at := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
	if at < 0 || c.Env[at].ValueFrom == nil || c.Env[at].ValueFrom.SecretKeyRef == nil {
		t.Fatalf("%s of %s is from no secret: %+v", name, c.Name, c.Env)
	}
	ref := c.Env[at].ValueFrom.SecretKeyRef
	value, found := r.secret.StringData[ref.Key]
	if ref.Name != r.secret.Name || !found {
		t.Fatalf("%s of %s is in the secret %+v", name, c.Name, ref)
	}
	return value
}

// args returns those of Redis, as Kubernetes fills them in.
func (r redis) args(t *testing.T) []string {
	t.Helper()
	out := slices.Clone(r.container.Args)
	for i := range out {
		out[i] = strings.ReplaceAll(out[i], "$(REDISCLI_AUTH)", r.value(t, r.container, "REDISCLI_AUTH"))
		if strings.Contains(out[i], "$(") {
			t.Errorf("argument %s", out[i])
		}
	}
	if out[0] != "redis-server" {
		t.Fatalf("%q", out)
	}
	return out[1:]
}

func TestRedisContainer(t *testing.T) {
	r := readRedis(t)
	if d := r.deployment.Spec; *d.Replicas != 1 || d.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Errorf("%+v", d)
	}
	c := r.container
	security, pod := c.SecurityContext, r.deployment.Spec.Template.Spec.SecurityContext
	if !*security.ReadOnlyRootFilesystem || *security.AllowPrivilegeEscalation || !*pod.RunAsNonRoot || *pod.RunAsUser == 0 || c.ReadinessProbe == nil || c.LivenessProbe == nil {
		t.Errorf("%+v, %+v", security, c)
	}
	if memory := c.Args[slices.Index(c.Args, "--maxmemory")+1]; memory != "200mb" || c.Resources.Limits.Memory().Value() < 400<<20 {
		t.Errorf("it is killed at %v, and has %s of data", c.Resources.Limits.Memory(), memory)
	}
}

// The limiters find it, and know its password.
func TestRedisURL(t *testing.T) {
	r := readRedis(t)
	limiter, _ := readPod(t).container(t, "hybridlimit")
	at, err := url.Parse(r.value(t, limiter, "HYBRIDLIMIT_REDIS"))
	if err != nil {
		t.Fatal(err)
	}
	password, _ := at.User.Password()
	port := r.service.Spec.Ports[0]
	if at.Scheme != "redis" || at.Host != net.JoinHostPort(r.service.Name, strconv.Itoa(int(port.Port))) || password != r.value(t, r.container, "REDISCLI_AUTH") {
		t.Errorf("they ask %s", at)
	}
	if named := r.container.Ports[0]; port.TargetPort.StrVal != named.Name || named.ContainerPort != 6379 {
		t.Errorf("the service sends to %v, and the container has %+v", port.TargetPort, named)
	}
}
