package rls

import (
	"testing"
	"time"
)

func TestExample7(t *testing.T) {
	const one, two = "key_1=value_1 user=bkthomps", "key_2=value_2 user=bkthomps"
	w := serve(t, `
domain: example7
descriptors:
  - key: key_1
    value: value_1
    descriptors:
      - {key: user, value: bkthomps, rate_limit: {name: specific_limit, requests_per_unit: 5, unit: second}}
  - key: key_2
    value: value_2
    descriptors:
      - {key: user, value: bkthomps, rate_limit: {replaces: [{name: specific_limit}], requests_per_unit: 10, unit: second}}
`, Options{})
	if n := w.admits("example7", one, two); n != 10 {
		t.Errorf("both: %d, want 10", n)
	}
	if n := w.admits("example7", one); n != 5 {
		t.Errorf("the first, which was replaced: %d, want 5", n)
	}
	w.now.Advance(2 * time.Second)
	if n := w.admits("example7", two); n != 10 {
		t.Errorf("the second: %d, want 10", n)
	}
}

func TestUnitsAreNamedInAnswers(t *testing.T) {
	for _, unit := range []string{"second", "minute", "hour", "day", "week", "month", "year"} {
		w := serve(t, "domain: d\ndescriptors: [{key: k, rate_limit: {name: n, unit: "+unit+", requests_per_unit: 3}}]", Options{})
		l := w.ask(request("d", d("k=v"))).GetStatuses()[0].GetCurrentLimit()
		if got := l.GetUnit().String(); got == "UNKNOWN" || l.GetName() != "n" || l.GetRequestsPerUnit() != 3 {
			t.Errorf("%s: %v", unit, l)
		}
	}
}
