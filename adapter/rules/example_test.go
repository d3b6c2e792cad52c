package rules_test

import (
	"fmt"

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
	// token-bucket "api": 20, refilling 100 per 1m0s
	// token-bucket "api@pro": 20, refilling 1000 per 1m0s
	// true
}

func ExampleValidate() {
	for _, p := range rules.Validate("rules.yaml", []byte("rules:\n  api: {algorithm: gcra, limit: 5, per: 60}\n")) {
		fmt.Println(p)
	}
	// Output:
	// rules.yaml:2:41: rules.api.per: 60 has no unit: write a duration such as 60s, 1m or 24h
}
