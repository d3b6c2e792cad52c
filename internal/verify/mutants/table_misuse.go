package main

// misuseMutants let mistakes of callers go unnoticed.
var misuseMutants = []mutant{
	{
		name:   "a-check-without-n-passes",
		breaks: "A check of several that does not say how many units asks for none.",
		at:     "limit Check.Units",
		old:    "	if q.N == 0 {\n		return 1\n	}\n",
		new:    "",
		by:     words("TestCheckUnits"),
	},
	{
		name:   "seconds-rounded-down",
		breaks: "Whoever waits the whole seconds that are told comes too early.",
		at:     "limit Result.RetryAfterSeconds",
		old:    `if res.RetryAfter%time.Second > 0 {`,
		new:    `if res.RetryAfter < 0 {`,
		by:     words("TestRetryAfterSeconds"),
	},
	{
		name:   "invalid-looks-like-a-decision",
		breaks: "The answer to what cannot be asked does not say that it is one.",
		at:     "internal/decision Invalid",
		old:    `, Source: limit.SourceInvalid}`,
		new:    `}`,
		by:     hybrid("TestQuestionsThatCannotBeAsked"),
	},
	{
		name:   "a-line-for-each-mistake",
		breaks: "Every check that cannot be asked is logged.",
		at:     "hybrid Limiter.invalid",
		old:    `!l.misuse[cause].Swap(true)`,
		new:    `!l.misuse[cause].Load()`,
		by:     hybrid("TestMistakesAreToldOnce"),
	},
}

// conflictMutants miss rules that contradict each other, or see some where there are none.
var conflictMutants = []mutant{
	{
		name:   "another-algorithm-unseen",
		breaks: "A key that a lease answers for is not noticed to be counted by two algorithms.",
		at:     "internal/table Table.createLocked",
		old:    `range t.names.Others(q.rule) {`,
		new:    `range t.names.Others(q.rule)[:0] {`,
		by:     tables("TestConflicts"),
	},
	{
		name:   "checks-unseen",
		breaks: "Rules of one name that contradict each other are not noticed by those who only ask whether there is room.",
		at:     "internal/table Table.withEntry",
		old:    "\tt.names.See(q.rule)\n\tif c := counterOf(e,",
		new:    "\tif c := counterOf(e,",
		by:     tables("TestConflicts"),
	},
	{
		name:   "a-change-is-a-conflict",
		breaks: "A rule that replaces another for good is taken for a conflict.",
		at:     "internal/rulenames Names.change",
		old:    `	if again >= 0 {`,
		new: `	n.conflicts.Add(1)
	if again >= 0 {`,
		by: tables("TestNoConflicts"),
	},
	{
		name:   "a-conflict-each-time",
		breaks: "Rules that contradict each other are logged with each change between them.",
		at:     "internal/rulenames Names.change",
		old:    `first, e.reported = !e.reported, true`,
		new:    `first = true`,
		by:     tables("TestConflicts"),
	},
	{
		name:   "all-names-remembered",
		breaks: "What is remembered of the names of rules has no bound.",
		at:     "internal/rulenames Names.entry",
		old:    `	if n.known.Load() >= maxNames || madeUp && n.made.Load() >= maxMadeUp {`,
		new:    `	if n.known.Load() < 0 {`,
		by:     rulenames("TestConflictsAreBounded"),
	},
}

// clientMutants recommend, or put up with, clients that do not keep their time.
var clientMutants = []mutant{
	{
		name:   "a-client-without-deadlines",
		breaks: "Nobody is told of a client whose calls deadlines do not bound.",
		at:     "hybrid faultsOf",
		old:    `	if !bounded {`,
		new:    `	if !bounded && retries < 0 {`,
		by:     hybrid("TestClientSettings"),
	},
	{
		name:   "recommended-retries",
		breaks: "The recommended settings have the client repeat calls.",
		at:     "hybrid RedisOptions",
		old:    `Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1,`,
		new:    `Addr: addr, ContextTimeoutEnabled: true,`,
		by:     hybrid("TestClientSettings"),
	},
}

// permissionMutants do not know what is said by other servers.
var permissionMutants = []mutant{
	{
		name:   "permissions-of-one-version",
		breaks: "A missing permission in the words of Redis 7.2 and Valkey may pass by itself.",
		at:     "internal/redisstore prefixes",
		old: `	{"ACL failure in script", ClassMisconfigured, "noperm"},
`,
		new: ``,
		by:  redisstore("TestClassifyPermissions"),
	},
}

// logMutants tell too much, or too little.
var logMutants = []mutant{
	{
		name:   "a-line-for-each-change",
		breaks: "Lines of one kind have no bound.",
		at:     "hybrid throttle.admit",
		old:    `	t.full = max(t.full, now) + logEvery`,
		new:    `	t.full = max(t.full, now)`,
		by:     hybrid("TestThrottle"),
	},
	{
		name:   "the-latest-state-untold",
		breaks: "A state whose line was one too many is never logged.",
		at:     "hybrid notifier.logState",
		old: `	n.late = &s
`,
		new: ``,
		by:  hybrid("TestRefusedMidRun"),
	},
	{
		name:   "an-outage-from-the-start",
		breaks: "What was admitted before an outage is reported as admitted in it.",
		at:     "hybrid outage.note",
		old:    `is.AdmittedUnits - o.before.AdmittedUnits`,
		new:    `is.AdmittedUnits`,
		by:     hybrid("TestLineThatEndsAnOutage"),
	},
	{
		name:   "operators-are-warned",
		breaks: "A wrong password is logged as if it could pass by itself.",
		at:     "hybrid notifier.logOutage",
		old:    `		level = slog.LevelError`,
		new:    `		level = slog.LevelWarn`,
		by:     hybrid("TestOperatorsAreToldByErrors"),
	},
	{
		name:   "broken-each-time",
		breaks: "A broken key is told of with each try.",
		at:     "internal/reconcile Machine.onKeyError",
		old:    `if !was {`,
		new:    `if was = false; !was {`,
		by:     hybrid("TestBrokenKeysAreEvents"),
	},
	{
		name:   "a-loss-for-each-shard",
		breaks: "A loss of everything is told of once for each shard.",
		at:     "internal/reconcile Machine.noteLoss",
		old:    "\tc.stats.Losses.Add(1)\n",
		new:    "\tc.stats.Losses.Add(1)\n\tc.happened(Incident{Kind: DataLost})\n",
		by:     hybrid("TestLossIsAnEvent"),
	},
	{
		name:   "the-latest-event-skipped",
		breaks: "Of too many events the latest are skipped.",
		at:     "hybrid push",
		old:    "\t\tselect {\n\t\tcase <-queue:\n\t\tdefault:\n\t\t}\n",
		new:    "\t\tif len(queue) > 0 {\n\t\t\treturn\n\t\t}\n",
		by:     hybrid("TestOnEventHangs"),
	},
	{
		name:   "a-key-in-full",
		breaks: "A log line or an error shows the whole of a key.",
		at:     "internal/escape shorten",
		old:    `if len(b) > most {`,
		new:    `if most < 0 {`,
		by:     escapes("FuzzQuote"),
	},
}
