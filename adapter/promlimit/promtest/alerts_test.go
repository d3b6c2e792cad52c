package promtest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silence{}) // it reports every failed dial
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(redistest.LateDial),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"))
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// read returns the text of a file.
func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// alerts returns the alert rules, as Prometheus reads them.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.Parse(read(t, "../alerts.yaml"), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) != 0 {
		t.Fatal(errs)
	}
	var rules []rulefmt.Rule
	for _, g := range groups.Groups {
		rules = append(rules, g.Rules...)
	}
	if len(rules) < 10 {
		t.Fatalf("%d rules", len(rules))
	}
	return rules
}

// outageAlerts are those that fire while Redis is away.
var outageAlerts = map[string]bool{"HybridlimitDegraded": true, "HybridlimitNoAnswer": true}

// timed are those that tell how fast Redis and this machine are: an ordinary test may make
// them fire.
var timed = map[string]bool{"HybridlimitSlowExchanges": true, "HybridlimitBehind": true, "HybridlimitFailing": true}

// trueBetween returns when an expression was true for the first and for the last time.
func (w *world) trueBetween(t *testing.T, expr string) (first, last time.Time) {
	t.Helper()
	for _, s := range w.evaluate(t, expr) {
		for _, p := range s.Floats {
			at := time.UnixMilli(p.T)
			if first.IsZero() || at.Before(first) {
				first = at
			}
			if at.After(last) {
				last = at
			}
		}
	}
	return first, last
}

// Each alert selects what there is and is silent in ordinary traffic, and after an outage of
// ten windows; those that are about outages fire while one lasts.
func TestAlerts(t *testing.T) {
	w := newWorld(t)
	for _, r := range alerts(t) {
		w.checkNames(t, r.Alert, r.Expr)
		first, last := w.trueBetween(t, r.Expr)
		if timed[r.Alert] {
			continue
		}
		if !outageAlerts[r.Alert] {
			if !first.IsZero() {
				t.Errorf("%s: true from scrape %d to %d", r.Alert, first.Sub(w.start)/interval-1, last.Sub(w.start)/interval-1)
			}
			continue
		}
		late := w.at(cutOff).Add(2 * time.Minute)
		if first.Before(w.at(cutOff)) || first.After(late) || last.Before(w.at(healed-1)) || last.After(w.at(healed+1)) {
			t.Errorf("%s: true from scrape %d to %d, and the outage was from %d to %d", r.Alert, first.Sub(w.start)/interval-1, last.Sub(w.start)/interval-1, cutOff, healed)
		}
		if last.Sub(first) < time.Duration(r.For) {
			t.Errorf("%s: true for %v, and has to be for %v", r.Alert, last.Sub(first), r.For)
		}
	}
}

// shown is what makes each of the other alerts true: series that are 0, or the first value, for
// half of the time, and then the second. A rate is a value that grows by so much with each scrape.
var shown = map[string][]struct {
	series       string
	before, then float64
	rate         bool
}{
	"HybridlimitFlapping":           {{`hybridlimit_state_changes_total`, 0, 1, true}},
	"HybridlimitFailing":            {{`hybridlimit_exchange_failures_total{reason="oom"}`, 1, 2, true}},
	"HybridlimitUnreported":         {{`hybridlimit_oldest_pending_seconds`, 1, 61, false}, {`hybridlimit_degraded`, 0, 0, false}},
	"HybridlimitBehind":             {{`hybridlimit_behind_seconds`, 0.9, 1.1, false}},
	"HybridlimitSlowExchanges":      {{`hybridlimit_exchange_duration_seconds_bucket{le="0.1"}`, 100, 98, true}, {`hybridlimit_exchange_duration_seconds_bucket{le="0.25"}`, 100, 100, true}, {`hybridlimit_exchange_duration_seconds_bucket{le="+Inf"}`, 100, 100, true}},
	"HybridlimitDataLost":           {{`hybridlimit_data_losses_total`, 3, 4, false}, {`hybridlimit_rolled_back_keys_total`, 0, 0, false}},
	"HybridlimitKeysQuarantined":    {{`hybridlimit_quarantined_keys`, 0, 1, false}},
	"HybridlimitNodesDisagree":      {{`hybridlimit_nodes{instance="a"}`, 2, 1, false}, {`hybridlimit_nodes{instance="b"}`, 2, 2, false}},
	"HybridlimitLayoutMismatch":     {{`hybridlimit_layout_mismatches`, 0, 1, false}},
	"HybridlimitNoticesDown":        {{`hybridlimit_notices_down`, 0, 1, false}},
	"HybridlimitExactFailing":       {{`hybridlimit_exact_failed_total`, 0, 2, true}, {`hybridlimit_exact_asked_total`, 100, 100, true}},
	"HybridlimitKeysForgotten":      {{`hybridlimit_displaced_keys_total`, 5, 6, false}},
	"HybridlimitMisuse":             {{`hybridlimit_invalid_checks_total{rule="api"}`, 0, 1, false}},
	"HybridlimitRuleConflict":       {{`hybridlimit_rule_conflicts_total`, 0, 1, false}},
	"HybridlimitRulesRefused":       {{`hybridlimit_rules_bad`, 0, 1, false}},
	"HybridlimitRequestsInvalid":    {{`hybridlimit_rls_requests_total{outcome="invalid"}`, 3, 4, false}},
	"HybridlimitConnectionsRefused": {{`hybridlimit_resp_connections_refused_total{reason="too_many"}`, 0, 1, false}},
	"HybridlimitUnexpected":         {{`hybridlimit_bad_replies_total`, 0, 0, false}, {`hybridlimit_renames_total`, 0, 1, false}, {`hybridlimit_hook_panics_total`, 0, 0, false}},
}

// Each alert that needs more than an outage is true when its series say so, and not before.
func TestAlertsFire(t *testing.T) {
	const turn = scrapes / 2
	for _, r := range alerts(t) {
		series, known := shown[r.Alert]
		if !known {
			if !outageAlerts[r.Alert] {
				t.Errorf("nothing shows that %s fires", r.Alert)
			}
			continue
		}
		w := emptyWorld(t)
		app := w.prom.db.Appender(t.Context())
		for _, s := range series {
			is, err := parser.NewParser(parser.Options{}).ParseMetric(s.series)
			if err != nil {
				t.Fatal(err)
			}
			b := labels.NewBuilder(is).Set("job", "service").Set("limiter", "main")
			if is.Get("instance") == "" {
				b.Set("instance", "a")
			}
			sum := 0.0
			for i := range scrapes {
				value := s.before
				if i >= turn {
					value = s.then
				}
				if sum += value; s.rate {
					value = sum
				}
				if _, err := app.Append(0, b.Labels(), w.at(i).UnixMilli(), value); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := app.Commit(); err != nil {
			t.Fatal(err)
		}
		if first, _ := w.trueBetween(t, r.Expr); first.Before(w.at(turn)) || first.After(w.at(turn).Add(15*time.Minute)) {
			t.Errorf("%s: true from scrape %d on, the cause begins with %d", r.Alert, first.Sub(w.start)/interval, turn)
		}
	}
}

var heading = regexp.MustCompile(`(?m)^#+ (.*)$`)

// Each alert says how bad it is, what has happened, and where to read on: at a heading of
// the runbook. The table of alerts there says the same of it, and has no other.
func TestAlertsLeadToTheRunbook(t *testing.T) {
	const row = "| `Hybridlimit"
	guide, anchors, rows := read(t, "../../../docs/operations.md"), map[string]bool{}, 0
	for _, h := range heading.FindAllSubmatch(guide, -1) {
		anchors[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, string(h[1]))] = true
	}
	table := map[string]string{}
	for line := range strings.Lines(string(guide)) {
		if names, rest, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | "); strings.HasPrefix(line, row) {
			for name := range strings.SplitSeq(names, ", ") {
				table[strings.Trim(name, "`")] = rest
				rows++
			}
		}
	}
	all := alerts(t)
	if rows != len(all) {
		t.Errorf("%d alerts, and %d in the table", len(all), rows)
	}
	for _, r := range all {
		file, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "#")
		if !strings.HasSuffix(file, "/docs/operations.md") || !anchors[anchor] {
			t.Errorf("%s: there is no %s", r.Alert, r.Annotations["runbook_url"])
		}
		if is := table[r.Alert]; !strings.HasPrefix(is, r.Labels["severity"]+" | ") || !strings.Contains(is, "](#"+anchor+") |") {
			t.Errorf("%s: severity %s, read on at %s, and the table says %q", r.Alert, r.Labels["severity"], anchor, is)
		}
		if s := r.Labels["severity"]; s != "page" && s != "ticket" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: %v", r.Alert, fmt.Sprint(r.Labels, r.Annotations))
		}
	}
}
