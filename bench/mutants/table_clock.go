package main

// clockMutants misread what a clock that was set has done.
var clockMutants = []mutant{
	{
		name:   "an-hour-put-right-is-an-hour-lost",
		breaks: "Redis' clock was behind for an hour. What a node heard in that hour it restores when the clock is right again.",
		file:   "internal/counter/sync.go",
		old:    `; d > slack {`,
		new:    `; false && d > slack {`,
		by:     hybrid("TestRealClockSetBackAndPutRight"),
	},
	{
		name:   "a-new-window-goes-by-any-clock",
		breaks: "On a Cluster a new window goes by the clock of another master until the reconciler has seen it.",
		file:   "internal/counter/link.go",
		old:    `p = l.Part(l.shardOf(key))`,
		new:    `_ = l.Part(l.shardOf(key))`,
		by:     counters("TestNewWindowGoesByItsOwnMaster"),
	},
	{
		name:   "nobody-says-where-a-key-lives",
		breaks: "A limiter does not tell its counters which master their keys live on: the reconciler does, later.",
		file:   "hybrid/new.go",
		old:    `l.link.SetShards(ks.Shard)`,
		new:    `_ = ks`,
		by:     hybrid("TestNewWindowsOnTwoMasters"),
	},
	{
		name:   "units-in-another-bucket-are-lost-units",
		breaks: "Redis' clock was behind, and it has counted units in other buckets meanwhile. Nodes that know them in theirs restore them there.",
		file:   "internal/algorithm/window_clock.go",
		old:    `w.moved = w.moved || u > 0`,
		new:    `w.moved = w.moved || false && u > 0`,
		by:     hybrid("TestRealClockSetBackCountsOnce"),
	},
	{
		name:   "asked-again-is-heard-before",
		breaks: "Redis' clock was set back once. Whenever a node asks for a window again, what Redis has lost of it counts as moved.",
		file:   "internal/counter/sync.go",
		old: `c.mark(outdated)
	if c.is(inNormal) {`,
		new: `c.mark(outdated)
	c.freshAt -= c.lag()
	if c.is(inNormal) {`,
		by: counters("TestLossAfterTheClockWasSetBack"),
	},
	{
		name:   "each-step-ahead-puts-right",
		breaks: "Redis' clock jumps ahead, and a funnel drains for everybody as if so much time had passed.",
		file:   "internal/counter/link.go",
		old:    `min(p.back.Load()+ns, 0)`,
		new:    `p.back.Load() + ns`,
		by:     hybrid("TestRedisClockJumps"),
	},
	{
		name:   "a-clock-that-stood-still-was-set",
		breaks: "Our clock stood still, and Redis' is taken to have been set ahead. If it was behind before, it passes for right.",
		file:   "hybrid/offset.go",
		old:    `-(lag-f.lag)`,
		new:    ``,
		by:     hybrid("TestOffsetFilter"),
	},
	{
		name:   "a-step-is-not-noticed",
		breaks: "A clock that was set looks as if it had always been so.",
		file:   "hybrid/offset.go",
		old:    `fresh.step = widest(fresh.ns-f.ns-(lag-f.lag), grown+fresh.err)`,
		new:    `fresh.step = 0`,
		by:     hybrid("TestRealClockSetBackAndPutRight"),
	},
	{
		name:   "late-answers-are-forgotten",
		breaks: "An answer was taken for later than it was, and the next one, which is below it by that much, for lost data.",
		file:   "internal/counter/sync.go",
		old:    ` + int64(c.lateMicros)*int64(time.Microsecond)`,
		new:    ``,
		by:     counters("TestNoLossAfterASlowAnswer"),
	},
	{
		name:   "what-stands-is-not-late",
		breaks: "What was known stands, its error is forgotten, and the next answer is taken for lost data.",
		file:   "internal/counter/sync.go",
		old:    `micros = max(micros, c.lateMicros)`,
		new:    ``,
		by:     counters("TestNoLossAfterASlowAnswer"),
	},
	{
		name:   "a-step-as-it-was-measured",
		breaks: "Redis' clock is set back and put right while exchanges are slow, and a node takes what drained by that for lost data.",
		file:   "hybrid/offset.go",
		old:    `widest(fresh.ns-f.ns-(lag-f.lag), grown+fresh.err)`,
		new:    `fresh.ns - f.ns - (lag - f.lag)`,
		by:     hybrid("TestStepIsNeverTooSmall"),
	},
}
