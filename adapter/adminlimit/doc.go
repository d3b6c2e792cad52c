// Package adminlimit is a page on which people see what a limiter of package hybrid knows: its mode and
// the last ten minutes, the nodes that share its limits, the keys near their limits and why a key is
// refused, and the rules in force. It needs no Prometheus and nothing from elsewhere: one page without
// dependencies, to be mounted like net/http/pprof where operators are and users are not.
//
//	page, err := adminlimit.New(lim, adminlimit.Options{})
//	admin.Handle("/limits/", page) // of a mux that users cannot reach
//
// Whoever reaches the page sees keys, which may be personal (names, addresses, tokens), names of hosts
// and programs, and limits. HideKeys leaves the keys out, and the text of the rules file. Nothing can be changed unless
// [Options].Authorise says who may.
//
// The same is there as JSON: now.json, keys.json (POST key, rule and plan to look one up), rules.json.
//
//	curl -s localhost:8080/limits/now.json
//	curl -s localhost:8080/limits/keys.json -d key=alice
//	curl -s -u admin:secret localhost:8080/limits/act.json -d do=reset -d key=alice -d rule=api
package adminlimit
