package rls

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/inside"
)

// Examples of envoyproxy/ratelimit's README: what it says of each must hold here. Those about which
// limit a request finds are in package rules.
func TestExample6(t *testing.T) {
	w := serve(t, `
domain: example6
descriptors:
  - key: service
    descriptors:
      - {key: user, value: user-a, rate_limit: {requests_per_unit: 10, unit: second}, shadow_mode: true}
      - {key: user, value: user-b, rate_limit: {requests_per_unit: 20, unit: second}}
`, Options{})
	for range 30 {
		w.ask(request("example6", d("service=auth-service user=user-a")))
	}
	w.want(request("example6", d("service=auth-service user=user-a")), "OK | OK 10/SECOND 0 1s")
	if n := inside.Of(w.lim).Figures().WouldRefuse; n != 21 {
		t.Errorf("%d would have been refused, want 21", n)
	}
	if n := w.admits("example6", "service=auth-service user=user-b"); n != 20 {
		t.Errorf("%d of the other user, want 20", n)
	}
	// One in shadow mode does not stop the others of a request.
	if n := w.admits("example6", "service=auth-service user=user-a", "service=x user=user-b"); n != 20 {
		t.Errorf("%d of both, want 20", n)
	}
}

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
