package server

import (
	"os"
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
)

// blocks returns the YAML of the page on the server.
func blocks(t *testing.T) (list []string) {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(page), "```yaml\n")[1:] {
		text, _, _ := strings.Cut(part, "```")
		list = append(list, text)
	}
	return list
}

// The page's rules file must be one, and its configuration of Envoy what Envoy's messages
// accept.
func TestThePageHasWhatWorks(t *testing.T) {
	list := blocks(t)
	if len(list) != 2 {
		t.Fatalf("%d blocks of YAML, want a rules file and a configuration of Envoy", len(list))
	}
	if _, err := rules.Parse("docs/server.md", []byte(list[0])); err != nil {
		t.Error(err)
	}
	var envoy struct {
		Filters  []any `yaml:"http_filters"`
		Clusters []any `yaml:"clusters"`
	}
	if err := yaml.Unmarshal([]byte(list[1]), &envoy); err != nil || len(envoy.Filters) != 1 || len(envoy.Clusters) != 1 {
		t.Fatalf("%+v, %v", envoy, err)
	}
	for _, c := range []struct {
		from any
		into proto.Message
	}{{envoy.Filters[0], &hcm.HttpFilter{}}, {envoy.Clusters[0], &clusterpb.Cluster{}}} {
		text, err := yaml.MarshalWithOptions(c.from, yaml.JSON())
		if err != nil {
			t.Fatal(err)
		}
		if err := protojson.Unmarshal(text, c.into); err != nil {
			t.Error(err)
			continue
		}
		if v, ok := c.into.(interface{ ValidateAll() error }); ok {
			if err := v.ValidateAll(); err != nil {
				t.Error(err)
			}
		}
	}
}
