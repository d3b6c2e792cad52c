package rules

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/limit"
)

var block = regexp.MustCompile("(?s)```([a-z]+) ?([^\n]*)\n(.*?)```")

// The page for users has files that are read, and prints what is really printed.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	files, outputs := map[string]string{}, map[string]string{}
	for _, m := range block.FindAllStringSubmatch(string(page), -1) {
		switch m[1] {
		case "yaml":
			files[m[2]] = m[3]
		case "text":
			outputs[m[2]] = m[3]
		}
	}
	if len(files) != 6 || len(outputs) != 1 {
		t.Fatalf("%d files and %d outputs", len(files), len(outputs))
	}
	for name, text := range files {
		if got := Validate(name, []byte(text)).Error(); strings.TrimSpace(got) != strings.TrimSpace(outputs[name]) {
			t.Errorf("%s prints\n%s", name, got)
		}
	}
	set := must(t, files["rules.yaml"])
	if set.For("calls", "acme").Limit() != 60000 || set.For("api", "acme").Limit() != 200 || set.For("api", "10.6.6.6").Limit() != 0 || !set.source.marked {
		t.Error("the example does not say what its comments say")
	}
	set = must(t, files["exceptions.yaml"])
	for want, q := range map[int64]Request{1000: {Key: "u", Addr: addr("192.0.2.1")}, 0: {Key: "monitor", Addr: addr("10.6.0.1"), Route: "GET /health"}, 100: {Key: "10.0.0.1", Route: "GET //health"}} {
		if got := set.ForRequest("api", q); !got.Valid() || got.Limit() != want {
			t.Errorf("%+v has %v, want %d", q, got, want)
		}
	}
	if set.For("per-address", "2001:db8:1::/64") != limit.Unlimited() || set.For("per-address", "192.0.2.7").Limit() != 20000 {
		t.Error("the example of exceptions does not say what its comments say")
	}
	for _, name := range append(append([]string{}, ruleFields...), overrideFields...) {
		if !regexp.MustCompile("(?m)^\\|[^|]*`" + name + "`").MatchString(string(page)) {
			t.Errorf("%s is in no table of fields", name)
		}
	}
	for _, name := range slices.Concat(algorithmNames, domainFields, descriptorFields, rateLimitFields) {
		if !strings.Contains(string(page), name) {
			t.Errorf("%s is not on the page", name)
		}
	}
}
