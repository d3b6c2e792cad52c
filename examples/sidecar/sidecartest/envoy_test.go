package sidecartest

import (
	"net"
	"slices"
	"strconv"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3" // its type is in the file
	manager "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3" // as well
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
)

// envoy is the configuration, as Envoy's own types have it.
type envoy struct {
	bootstrap bootstrap.Bootstrap
	manager   manager.HttpConnectionManager
	limits    ratelimit.RateLimit
}

// readMessage reads YAML into a message. Fields and types that it does not have are errors, and
// so are values that the rules of the message do not allow, at any depth.
func readMessage(t *testing.T, text []byte, into proto.Message) {
	t.Helper()
	json, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(json, into); err != nil {
		t.Fatal(err)
	}
	validate(t, into)
}

func validate(t *testing.T, m proto.Message) {
	t.Helper()
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			t.Error(err)
		}
	}
	if a, ok := m.(*anypb.Any); ok {
		inner, err := a.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		validate(t, inner)
		return
	}
	message := func(v protoreflect.Value) { validate(t, v.Message().Interface()) }
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { message(v); return true })
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				message(v.List().Get(i))
			}
		case !f.IsMap() && !f.IsList() && f.Message() != nil:
			message(v)
		}
		return true
	})
}

func readEnvoy(t *testing.T) *envoy {
	t.Helper()
	e := &envoy{}
	readMessage(t, read(t, "envoy.yaml"), &e.bootstrap)
	filters := e.bootstrap.GetStaticResources().GetListeners()[0].GetFilterChains()[0].GetFilters()
	if err := filters[0].GetTypedConfig().UnmarshalTo(&e.manager); err != nil {
		t.Fatal(err)
	}
	if err := e.manager.GetHttpFilters()[0].GetTypedConfig().UnmarshalTo(&e.limits); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *envoy) port(t *testing.T) uint32 {
	t.Helper()
	return e.bootstrap.GetStaticResources().GetListeners()[0].GetAddress().GetSocketAddress().GetPortValue()
}

// address returns where a cluster is.
func (e *envoy) address(t *testing.T, cluster string) string {
	t.Helper()
	for _, c := range e.bootstrap.GetStaticResources().GetClusters() {
		if c.GetName() == cluster {
			a := c.GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress()
			return net.JoinHostPort(a.GetAddress(), strconv.Itoa(int(a.GetPortValue())))
		}
	}
	t.Fatalf("there is no cluster %s", cluster)
	return ""
}

// descriptors returns what Envoy asks for of a request with a key, for the path /export.
func (e *envoy) descriptors(t *testing.T, key string) (all [][]rules.Entry) {
	t.Helper()
	host := e.manager.GetRouteConfig().GetVirtualHosts()[0]
	first := host.GetRoutes()[0]
	if first.GetMatch().GetPrefix() != "/export" {
		t.Errorf("the first route is %v", first)
	}
	all = of(t, first.GetRoute().GetRateLimits(), key)
	// Who has a key is limited on every route.
	elsewhere := of(t, host.GetRateLimits(), key)
	if len(elsewhere) != 1 || len(all) != 2 || !slices.Equal(all[0], elsewhere[0]) {
		t.Errorf("/export is asked for %v, and all else for %v", all, elsewhere)
	}
	return all
}

// of returns the descriptors that some limits of a route make of a request.
func of(t *testing.T, limits []*route.RateLimit, key string) (all [][]rules.Entry) {
	t.Helper()
	for _, l := range limits {
		var entries []rules.Entry
		for _, a := range l.GetActions() {
			entries = append(entries, entry(t, a, key))
		}
		all = append(all, entries)
	}
	return all
}

func entry(t *testing.T, a *route.RateLimit_Action, key string) rules.Entry {
	t.Helper()
	if h := a.GetRequestHeaders(); h != nil {
		return rules.Entry{Key: h.GetDescriptorKey(), Value: key}
	}
	if g := a.GetGenericKey(); g != nil {
		return rules.Entry{Key: "generic_key", Value: g.GetDescriptorValue()}
	}
	t.Fatalf("action %v", a)
	return rules.Entry{}
}

func TestEnvoy(t *testing.T) {
	e := readEnvoy(t)
	service := e.limits.GetRateLimitService()
	if cluster := service.GetGrpcService().GetEnvoyGrpc().GetClusterName(); cluster != "hybridlimit" || service.GetTransportApiVersion() != core.ApiVersion_V3 {
		t.Errorf("%v", service)
	}
	for _, r := range e.manager.GetRouteConfig().GetVirtualHosts()[0].GetRoutes() {
		e.address(t, r.GetRoute().GetCluster())
	}
	if n := len(e.manager.GetHttpFilters()); n != 2 {
		t.Errorf("%d filters: the one that asks comes first, and the router last", n)
	}
}

// What Envoy asks for has a limit in the rules, and the rules have no mistake.
func TestRules(t *testing.T) {
	text := read(t, "rules.yaml")
	for _, p := range rules.Validate("rules.yaml", text) {
		t.Error(p)
	}
	set, err := rules.Parse("rules.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	e := readEnvoy(t)
	for _, entries := range e.descriptors(t, "alice") {
		if set.Descriptor(e.limits.GetDomain(), entries) == nil {
			t.Errorf("there is no limit for %v in domain %s", entries, e.limits.GetDomain())
		}
	}
	if set.For("reports", "alice") == nil {
		t.Error("there is no rule reports")
	}
}
