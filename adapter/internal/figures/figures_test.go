package figures

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/inside"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// read returns the values of all series.
func read(s *Snapshot) map[string]float64 {
	all := map[string]float64{}
	for _, m := range Metrics() {
		m.Read(s, func(value float64, labels ...string) { all[fmt.Sprint(m.Name, labels)] = value })
	}
	return all
}

// set gives a field another value than zero.
func set(t *testing.T, field reflect.Value) {
	t.Helper()
	switch is := field.Addr().Interface().(type) {
	case *uint64:
		*is = 1
	case *int64:
		*is = 1
	case *int:
		*is = 1
	case *string:
		*is = "noperm"
	case *time.Duration:
		*is = time.Second
	case *time.Time:
		*is = time.Unix(1, 0)
	case *hybrid.Mode:
		*is = hybrid.Degraded
	case *inside.Latency:
		is.Last = time.Second
	case *map[string]uint64:
		*is = map[string]uint64{"oom": 1}
	default:
		t.Fatalf("no value for a %T", is)
	}
}

// Each figure of a limiter is in a metric, and so is each source of decisions.
func TestEveryFigureIsExported(t *testing.T) {
	elsewhere := map[string]string{
		"Allowed": "Rules", "Denied": "Rules", "WouldRefuse": "Rules", "Invalid": "Rules", "Exempt": "Rules", "Failures": "FailuresBy",
		"Since": "", "Reason": "", "Err": "", // for people
	}
	changes := func(name string, of func(*Snapshot) reflect.Value) {
		var s Snapshot
		s.Rules = []inside.RuleFigures{{Name: "api"}}
		before := read(&s)
		set(t, of(&s).FieldByName(name))
		if reflect.DeepEqual(before, read(&s)) {
			t.Errorf("no metric has %s", name)
		}
	}
	stats := func(s *Snapshot) reflect.Value { return reflect.ValueOf(&s.Figures).Elem() }
	state := func(s *Snapshot) reflect.Value { return reflect.ValueOf(&s.State).Elem() }
	rule := func(s *Snapshot) reflect.Value { return reflect.ValueOf(&s.Rules[0]).Elem() }
	for _, name := range []string{"WouldRefuse", "Invalid", "Exempt"} {
		changes(name, rule)
	}
	denied := func(s *Snapshot) reflect.Value { return reflect.ValueOf(&s.Rules[0].Denied).Elem() }
	for _, of := range []func(*Snapshot) reflect.Value{stats, state, denied} {
		is := of(&Snapshot{Figures: inside.Figures{Rules: make([]inside.RuleFigures, 1)}}).Type()
		for field := range is.Fields() {
			if _, skip := elsewhere[field.Name]; !skip && field.Name != "Rules" {
				changes(field.Name, of)
			}
		}
	}
}

// Rules that share a label are added up, all sources of them.
func TestRulesOfOneLabel(t *testing.T) {
	one := inside.Outcomes{Unsynced: 1, Synced: 2, Degraded: 3, Local: 4, Notice: 5, Remote: 6}
	s := Snapshot{Figures: inside.Figures{Rules: []inside.RuleFigures{{Name: "", Denied: one, Exempt: 1}, {Name: Other, Denied: one, Exempt: 2}}}}
	for source, want := range map[string]float64{"unsynced": 2, "synced": 4, "degraded": 6, "local": 8, "notice": 10, "remote": 12} {
		if got := read(&s)["hybridlimit_decisions_total"+fmt.Sprint([]string{Other, "denied", source})]; got != want {
			t.Errorf("%s: %v refusals, want %v", source, got, want)
		}
	}
	if got := read(&s)["hybridlimit_exempt_checks_total"+fmt.Sprint([]string{Other})]; got != 3 {
		t.Errorf("%v exempt, want 3", got)
	}
}
