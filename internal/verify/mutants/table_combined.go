package main

// combinedMutants decide wrongly by several limits in one rule.
var combinedMutants = []mutant{
	{
		name:   "only-the-first-of-several",
		breaks: "A check under a combined rule is decided by its first rule alone.",
		at:     "internal/decision AppendParts",
		old:    `for _, part := range rule.Parts() {`,
		new:    `for _, part := range rule.Parts()[:min(1, len(rule.Parts()))] {`,
		by:     hybrid("TestCombined"),
	},
	{
		name:   "the-loosest-of-several",
		breaks: "Peek of a combined rule answers for the rule that is asked last.",
		at:     "internal/decision Tightest",
		old:    `Add(&v, i, part, ask(part))`,
		new:    `v = limit.AllResult{Result: ask(part), By: i, Rule: part}`,
		by:     local("TestCombined"),
	},
	{
		name:   "what-is-left-of-one",
		breaks: "TakeAtMost grants nothing of what is left.",
		at:     "internal/decision TakeLeft",
		old:    `for range mostTries {`,
		new:    `for range mostTries - mostTries {`,
		by:     local("TestCombined"),
	},
	{
		name:   "a-check-of-another",
		breaks: "TakeAll says that another check decided, because combined rules have moved them.",
		at:     "internal/decision Original",
		old:    `v.By = of[v.By]`,
		new:    `v.By = of[0]`,
		by:     hybrid("TestCombined"),
	},
	{
		name:   "one-name-for-several",
		breaks: "Several limits of one line share a counter.",
		at:     "limit Combine",
		old:    `case names[r.Name()]:`,
		new:    `case names[r.Name()] && r.dry:`,
		by:     words("TestParse"),
	},
	{
		name:   "a-dry-run-of-a-part",
		breaks: "A rule that refuses is combined with one that is tried out, and nobody can say what remains.",
		at:     "limit Combine",
		old:    `case i > 0 && r.dry != c.dry:`,
		new:    `case i > 1 && r.dry != c.dry:`,
		by:     words("TestCombine"),
	},
	{
		name:   "a-plan-of-another-period",
		breaks: "A plan with another period converts what the others have counted.",
		at:     "adapter/rules numbers.shape",
		old:    `per: r.Period(), buckets: r.Buckets()}`,
		new:    `buckets: r.Buckets()}`,
		by:     rulesfile("TestLimits"),
	},
	{
		name:   "a-look-at-one-of-several",
		breaks: "The status of a descriptor with several limits is not that of the tightest.",
		at:     "cmd/hybridlimit/internal/server/rls Service.peek",
		old:    `q.res, q.part = v.Result, v.Rule`,
		new:    `q.res, q.part = v.Result, q.limit.Rule.Parts()[0]`,
		by:     rls("TestWhichOfSeveralLimits"),
	},
}
