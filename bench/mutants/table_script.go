package main

// scriptMutants break what happens in Redis, and on the way there.
var scriptMutants = []mutant{
	{
		name:   "no-dedup-in-the-script",
		breaks: "A batch that Redis has booked is booked again when it comes again.",
		file:   "remote/lua/batch.lua",
		old:    `verdict = 'd'`,
		new:    `verdict = 'a'`,
		by:     simScripts(3),
	},
	{
		name:   "stale-batch-is-booked",
		breaks: "A late copy of an older batch is booked.",
		file:   "remote/lua/batch.lua",
		old: `elseif last > seq then
  verdict = 's'`,
		new: "",
		by:  remote("TestBatchVerdicts"),
	},
	{
		name:   "delta-applied-twice-in-the-script",
		breaks: "A funnel's units are added twice.",
		file:   "remote/lua/batch.lua",
		old:    `us, rem = us + ARGV[at + 2], rem + ARGV[at + 3]`,
		new:    `us, rem = us + 2 * ARGV[at + 2], rem + ARGV[at + 3]`,
		by:     simScripts(3),
	},
	{
		name:   "funnel-merge-without-max",
		breaks: "A funnel that was idle counts new units from when it ran empty.",
		file:   "remote/lua/batch.lua",
		old: `  st.us, st.rem = later(st.us, st.rem, us, rem)
  end
  local us, rem = level`,
		new: `end
  local us, rem = level`,
		by: simScripts(3),
	},
	{
		name:   "raise-adds-up",
		breaks: "Two nodes that raise a window after a loss count its units twice.",
		file:   "remote/lua/batch.lua",
		old:    `math.max(st.n[age] or 0, n[age])`,
		new:    `(st.n[age] or 0) + n[age]`,
		by:     remote("TestRaiseIsIdempotent"),
	},
	{
		name:   "raise-undoes-a-reset",
		breaks: "An older view of a key that was reset is put back.",
		file:   "remote/lua/batch.lua",
		old: `local function raise_window(st, gen, n, kept)
  if st.gen > gen then
    return
  end`,
		new: `local function raise_window(st, gen, n, kept)`,
		by:  remote("TestRaiseAcrossGenerations"),
	},
	{
		name:   "one-broken-key-fails-all",
		breaks: "A batch with a key of another type is not booked at all.",
		file:   "remote/lua/batch.lua",
		old:    `ok, why = pcall(kinds[ARGV[at]] or unknown, KEYS[i], at + 2, fields, apply, out, n)`,
		new:    `ok, why = true, (kinds[ARGV[at]] or unknown)(KEYS[i], at + 2, fields, apply, out, n)`,
		by:     remote("TestPoisonedKeys"),
	},
	{
		name:   "no-ttl",
		breaks: "Counters stay in Redis for ever.",
		file:   "remote/lua/lib.lua",
		old:    `call('SET', key, value, 'PX', text)`,
		new:    `call('SET', key, value)`,
		by:     remote("TestStateFormats"),
	},
	{
		name:   "ttl-of-0",
		breaks: "A counter is given a TTL of 0, which Redis refuses.",
		file:   "remote/lua/lib.lua",
		old:    `return ttl < FOREVER and ttl or FOREVER`,
		new:    `return 0`,
		by:     remote("TestStateFormats"),
	},
	{
		name:   "numbers-as-lua-prints-them",
		breaks: "Large numbers are written with an exponent.",
		file:   "remote/lua/lib.lua",
		old:    `return format('%.0f', x)`,
		new:    `return tostring(x)`,
		by:     remote("TestConformance"),
	},
	{
		name:   "noscript-in-a-pipeline",
		breaks: "A script that Redis has forgotten is not sent again.",
		file:   "remote/scripts.go",
		old:    `if len(missing) > 0 {`,
		new:    `if len(missing) > len(calls) {`,
		by:     remote("TestNoScriptInPipeline"),
	},
	{
		name:   "noscript-sends-all-again",
		breaks: "With a forgotten script the whole pipeline is sent again.",
		file:   "remote/scripts.go",
		old:    `s.send(ctx, missing)`,
		new:    `s.send(ctx, calls)`,
		by:     remote("TestOnlyMissingScriptsAreSentAgain"),
	},
	{
		name:   "answer-of-another-length",
		breaks: "A reply with a wrong number of states is accepted.",
		file:   "remote/batch.go",
		old:    `case withStates && n != int64(len(ops)), !withStates && n != 0:`,
		new:    `case withStates && n > int64(len(ops)), !withStates && n != 0:`,
		by:     remote("TestDecodeRejects"),
	},
	{
		name:   "nodes-never-expire",
		breaks: "A node that is gone is counted for ever.",
		file:   "remote/lua/beat.lua",
		old:    `redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', int(now))`,
		new:    "",
		by:     remote("TestNodesExpire"),
	},
}
