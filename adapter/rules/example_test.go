package rules_test

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/hybridlimit/hybridlimit/adapter/httplimit"
	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/limit"
)

func ExampleParse() {
	set, err := rules.Parse("rules.yaml", []byte(`
rules:
  api: {algorithm: token-bucket, limit: 100, per: 1m, burst: 20}
plans:
  pro: {api: {limit: 1000}}
overrides:
  - {key: acme, plan: pro}
  - {key: status-page, unlimited: true}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(set.For("api", "anyone"))
	fmt.Println(set.For("api", "acme"))
	fmt.Println(set.For("api", "status-page") == limit.Unlimited())
	// Output:
	// token-bucket "api": 20, refilling 100 per minute
	// token-bucket "api@pro": 20, refilling 1000 per minute
	// true
}

// What trusted proxies say of the client, and the router of the route.
func ExampleSet_ForRequest() {
	set, err := rules.Parse("rules.yaml", []byte(`
rules:
  api: {algorithm: sliding-window, limit: 100, per: 1m}
overrides:
  - {route: GET /health, unlimited: true}
  - {cidr: 198.51.100.0/24, unlimited: true}
  - {cidr: 192.0.2.0/24, rules: {api: {limit: 1000}}}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	client := limit.Must(httplimit.ClientAddr(httplimit.AddressOptions{
		Trusted: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/28")}, Header: httplimit.XForwardedFor,
	}))
	ruleFor := func(r *http.Request) *limit.Rule {
		return set.ForRequest("api", rules.Request{Key: "alice", Addr: client(r), Route: r.Pattern})
	}
	proxied := func(forwarded string) *http.Request {
		return &http.Request{RemoteAddr: "10.1.2.3:99", Header: http.Header{"X-Forwarded-For": {forwarded}}}
	}
	fmt.Println(ruleFor(proxied("203.0.113.5")))
	fmt.Println(ruleFor(proxied("203.0.113.5, 192.0.2.1")))
	fmt.Println(ruleFor(proxied("198.51.100.7")) == limit.Unlimited())
	fmt.Println(ruleFor(proxied("198.51.100.7, 203.0.113.5")) == limit.Unlimited()) // he has written the first himself
	// Output:
	// sliding-window "api": 100 per minute
	// sliding-window "api": 1000 per minute
	// true
	// false
}

func ExampleValidate() {
	for _, p := range rules.Validate("rules.yaml", []byte("rules:\n  api: {algorithm: gcra, limit: 5, per: 60}\n")) {
		fmt.Println(p)
	}
	// Output:
	// rules.yaml:2:41: rules.api.per: 60 has no unit: write a duration such as 60s, 1m or 24h
}
