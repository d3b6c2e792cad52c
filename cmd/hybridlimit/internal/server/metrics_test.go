package server

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// The linter of "promtool check metrics" has nothing to say about the page.
func TestMetricsPassTheLinter(t *testing.T) {
	n := begin(t, "", nil)
	admits(t, n.take, "alice")
	n.ask("alice")
	_, body := n.get("/metrics")
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil || len(problems) != 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

var ofServer = regexp.MustCompile(`(?m)^hybridlimit_(?:rules|resp|rls)_\S+`)

// Alerts and dashboard are tested with a page that has the same series of the server and of the
// rules file as this one. The dashboard shows each of them.
func TestAlertsAndDashboardKnowTheMetrics(t *testing.T) {
	const folder = "../../../../adapter/promlimit/"
	read := func(name string) string {
		text, err := os.ReadFile(folder + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	n := begin(t, "", nil)
	n.ask("alice")
	_, body := n.get("/metrics")
	is, page, dashboard := ofServer.FindAllString(body, -1), ofServer.FindAllString(read("promtest/testdata/serve.txt"), -1), read("dashboard.json")
	if !slices.Equal(is, page) {
		t.Errorf("the series are\n%v, and promtest/testdata/serve.txt has\n%v", is, page)
	}
	for _, series := range is {
		if name, _, _ := strings.Cut(series, "{"); !strings.Contains(dashboard, name) {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}
