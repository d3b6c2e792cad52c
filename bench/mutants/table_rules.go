package main

// rulesMutants break the file with limits: what is taken for a whole file, what a change of it
// leaves alone, and who gets which limit.
var rulesMutants = []mutant{
	{
		name:   "half-a-file-is-a-file",
		breaks: "A file whose end is missing replaces the one in force.",
		file:   "adapter/rules/guard.go",
		old:    `gone := is.lacks(was)`,
		new:    `gone := was.lacks(was)`,
		by:     rulesfile("TestTruncatedAtEveryByte"),
	},
	{
		name:   "a-raise-is-a-pardon",
		breaks: "Who gets another limit by a plan or an override loses what he has used.",
		file:   "adapter/rules/sections.go",
		old:    `if s.shape() != r.numbers.shape() {`,
		new:    `if s != r.numbers {`,
		by:     rulesfile("TestUsageIsKept"),
	},
	{
		name:   "the-shortest-prefix-wins",
		breaks: "Of two prefixes of a key the shorter one decides.",
		file:   "adapter/rules/guard.go",
		old:    "\tslices.Reverse(s.lengths)\n",
		new:    "",
		by:     rulesfile("TestOverridesAgainstAReference"),
	},
	{
		name:   "plans-before-overrides",
		breaks: "The plan that a caller names comes before the override of the key.",
		file:   "adapter/rules/set.go",
		old:    `if o := s.override(key); o != nil {`,
		new:    `if o := s.override(key); o != nil && p.rules[name] == nil {`,
		by:     rulesfile("TestForPlan"),
	},
	{
		name:   "thirty-one-days",
		breaks: "A month is longer than envoyproxy/ratelimit counts it.",
		file:   "adapter/rules/descriptors.go",
		old:    `30 * 24 * time.Hour`,
		new:    `31 * 24 * time.Hour`,
		by:     rulesfile("TestUnits"),
	},
	{
		name:   "a-gigabyte-of-rules",
		breaks: "A file of any size is read before it is refused.",
		file:   "adapter/rules/parse.go",
		old:    `io.ReadAll(io.LimitReader(f, MaxBytes+1))`,
		new:    `io.ReadAll(f)`,
		by:     rulesfile("TestLoadRefuses"),
	},
	{
		name:   "only-when-told",
		breaks: "A file system that gives no notices keeps the first file in force.",
		file:   "adapter/rules/file.go",
		old:    "case <-poll.C:\n\t\t\tread()",
		new:    "case <-poll.C:",
		by:     rulesfile("TestLostNotices"),
	},
}
