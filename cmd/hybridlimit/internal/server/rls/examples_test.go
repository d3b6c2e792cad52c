package rls

import (
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
)

// The examples of envoyproxy/ratelimit's README: what it says of each must hold here. What
// differs is the window: it slides.

func TestExample1(t *testing.T) {
	w := serve(t, `
domain: mongo_cps
descriptors:
  - {key: database, value: users, rate_limit: {unit: second, requests_per_unit: 500}}
  - {key: database, value: default, rate_limit: {unit: second, requests_per_unit: 500}}
`, Options{})
	w.want(request("mongo_cps", d("database=users")), "OK | OK 500/SECOND 499 1s")
	if n := w.admits("mongo_cps", "database=users"); n != 499 {
		t.Errorf("%d more are admitted, want 499", n)
	}
	if n := w.admits("mongo_cps", "database=default"); n != 500 {
		t.Errorf("%d of the other value are admitted, want 500", n)
	}
	w.want(request("mongo_cps", d("database=other")), "OK | OK 0")
	w.now.Advance(1100 * time.Millisecond)
	if n := w.admits("mongo_cps", "database=users"); n != 500 {
		t.Errorf("%d are admitted in the next window, want 500", n)
	}
}

const messaging = `
domain: messaging
descriptors:
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: {unit: day, requests_per_unit: 5}
  - key: to_number
    rate_limit: {unit: day, requests_per_unit: 100}
`

func TestExample2(t *testing.T) {
	w := serve(t, messaging, Options{})
	for _, number := range []string{"2061111111", "2062222222"} { // each has a limit of its own
		if n := w.admits("messaging", "message_type=marketing to_number="+number, "to_number="+number); n != 5 {
			t.Errorf("%d marketing messages, want 5", n)
		}
		if n := w.admits("messaging", "to_number="+number); n != 95 {
			t.Errorf("%d messages more, want 95", n)
		}
		if n := w.admits("messaging", "message_type=marketing to_number="+number, "to_number="+number); n != 0 {
			t.Errorf("%d marketing messages more, want none", n)
		}
	}
	w.want(request("messaging", d("message_type=marketing")), "OK | OK 0")
	w.want(request("messaging", d("message_type=other to_number=1")), "OK | OK 0")
}

func TestExample3(t *testing.T) {
	w := serve(t, `
domain: edge_proxy_per_ip
descriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 10}}
  - {key: remote_address, value: 50.0.0.5, rate_limit: {unit: second, requests_per_unit: 0}}
`, Options{})
	for _, ip := range []string{"50.0.0.1", "50.0.0.2"} {
		if n := w.admits("edge_proxy_per_ip", "remote_address="+ip); n != 10 {
			t.Errorf("%s: %d, want 10", ip, n)
		}
	}
	w.want(request("edge_proxy_per_ip", d("remote_address=50.0.0.5")), "OVER_LIMIT | OVER_LIMIT 0/SECOND 0 0s")
}

func TestExample4(t *testing.T) {
	deep := request("example4", d("key=value subkey=subvalue"))
	w := serve(t, "domain: example4\ndescriptors: [{key: key, value: value, rate_limit: {requests_per_unit: 300, unit: second}}]", Options{})
	w.want(deep, "OK | OK 0") // as many levels as entries
	w = serve(t, "domain: example4\ndescriptors: [{key: key, value: value, descriptors: [{key: subkey, rate_limit: {requests_per_unit: 300, unit: second}}]}]", Options{})
	w.want(deep, "OK | OK 300/SECOND 299 1s")
}

func TestExample5(t *testing.T) {
	w := serve(t, `
domain: internal
descriptors:
  - {key: ldap, rate_limit: {unlimited: true}}
  - {key: azure, rate_limit: {unit: minute, requests_per_unit: 100}}
`, Options{})
	for range 3 {
		w.want(request("internal", d("ldap=x")), "OK | OK 4294967295")
	}
	w.want(request("internal", d("azure=x")), "OK | OK 100/MINUTE 99 60s")
	w.want(request("internal", d("none=x")), "OK | OK 0") // one can tell both apart
	w.want(request("other", d("azure=x")), "OK | OK 0")   // a domain that there is not
	w.want(request("internal", d("")), "OK | OK 0")       // no entries
}

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
	if n := w.lim.Stats().WouldRefuse; n != 21 {
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

func TestExamples8And9(t *testing.T) {
	w := serve(t, `
domain: example8
descriptors:
  - {key: key1, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: key1, value: value1, rate_limit: {unit: minute, requests_per_unit: 20}}
---
domain: example9
descriptors:
  - {key: key1, value: value*, rate_limit: {unit: minute, requests_per_unit: 20}}
`, Options{})
	for _, c := range []struct {
		domain, text string
		want         int
	}{
		{"example8", "key1=unspecified_value", 10}, {"example8", "key1=unspecified_value2", 10}, {"example8", "key1=value1", 20},
		{"example9", "key1=value1", 20}, {"example9", "key1=value2", 20},
	} {
		if n := w.admits(c.domain, c.text); n != c.want {
			t.Errorf("%s: %s: %d, want %d", c.domain, c.text, n, c.want)
		}
	}
	w.want(request("example9", d("key1=other")), "OK | OK 0")
}

// detailed_metric, of example 8, and value_to_metric name metrics, of which we have none by value:
// such files are refused.
func TestExamples8And10AreRefused(t *testing.T) {
	for _, field := range []string{"detailed_metric", "value_to_metric"} {
		_, err := rules.Parse("f", []byte(`domain: example10
descriptors:
  - key: route
    `+field+`: true
    descriptors: [{key: subject_id, rate_limit: {unit: minute, requests_per_unit: 60}}]
`))
		if err == nil || !strings.HasPrefix(err.Error(), "f:4:22: ") || !strings.Contains(err.Error(), "no metric has a label for a value") {
			t.Error(err)
		}
	}
}

func TestExample11(t *testing.T) {
	w := serve(t, `
domain: example11
descriptors:
  - {key: files, value: files/*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: files_no_share, value: files_no_share/*, share_threshold: false, rate_limit: {unit: hour, requests_per_unit: 10}}
`, Options{})
	for _, c := range []struct {
		text string
		want int
	}{
		{"files=files/a.pdf", 10}, {"files=files/b.csv", 0}, {"files=files/c.txt", 0},
		{"files_no_share=files_no_share/a.pdf", 10}, {"files_no_share=files_no_share/b.csv", 10},
	} {
		if n := w.admits("example11", c.text); n != c.want {
			t.Errorf("%s: %d, want %d", c.text, n, c.want)
		}
	}
}

// A star limits wherever it is in a value.
func TestStarsAnywhere(t *testing.T) {
	w := serve(t, `
domain: stars
descriptors:
  - {key: path, value: /v1/*/orders, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: host, value: "*.shop.example", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: agent, value: "*bot*v1*", rate_limit: {unit: hour, requests_per_unit: 4}}
`, Options{})
	for _, c := range []struct {
		text string
		want int
	}{
		{"path=/v1/acme/orders", 2}, {"path=/v1/emca/orders", 2}, // each value by itself
		{"host=a.shop.example", 3}, {"host=b.c.shop.example", 0}, // together
		{"agent=some-bot/v1.2", 4},
	} {
		if n := w.admits("stars", c.text); n != c.want {
			t.Errorf("%s: %d, want %d", c.text, n, c.want)
		}
	}
	w.want(request("stars", d("path=/v1/acme/orders/7")), "OK | OK 0")
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
