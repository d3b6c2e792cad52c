// Package rules reads limits from a file, and keeps to it while it changes.
//
//	rules:
//	  api:
//	    algorithm: token-bucket
//	    limit: 100
//	    per: 1m
//	    burst: 20
//	plans:
//	  pro:
//	    api: {limit: 1000, burst: 200}
//	overrides:
//	  - key: acme
//	    plan: pro
//	...
//
// [Watch] reads such a file and reads it again when it changes:
//
//	file, err := rules.Watch("rules.yaml", rules.Options{})
//	…
//	defer file.Close()
//
//	if rule := file.Set().For("api", user); rule != limit.Unlimited() && !lim.Allow(user, rule) {
//		// refuse
//	}
//
// A look-up reads one pointer and a few maps: no lock, no allocation. What keys have used is
// kept in the limiter, by the name of a rule, so that it stays when the numbers change.
//
// # What a bad file does
//
// Nothing. A file with a mistake, without rules, that is missing or cannot be read leaves the
// rules as they are, with one line in the log and [Stats]. So does a file that seems to be cut
// off: one that lacks what is in force must end with a line of three dots, see [Options].
//
// # Checks in pipelines
//
// [Validate] returns all mistakes of a file, each with line, column and field. What a limiter
// cannot decide by is a mistake for [Options.Load] and [Options.Parse] only, which know it.
//
// # Envoy
//
// The format of envoyproxy/ratelimit, with domain and descriptors, is read as well; see
// [Set.Descriptor]. A file may have several documents, divided by a line of three dashes: one
// of rules, and one for each domain.
package rules
