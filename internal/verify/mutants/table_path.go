package main

// pathMutants break the short ways: of a clock that is read forward only, of a batch that is
// read at once.
var pathMutants = []mutant{
	{
		name:   "read-ahead-twice",
		breaks: "A value that was read for a batch is used again after it was replaced.",
		at:     "internal/redisstore/lua/batch.lua",
		old:    "    v = nil\n",
		new:    "    v = v\n",
		by:     redisstore("TestBatchReadsAhead"),
	},
	{
		name:   "plain-whatever-the-rate",
		breaks: "A leaky bucket that has leaked at another rate goes on as if it had not.",
		at:     "internal/redisstore/lua/batch.lua",
		old:    `if rate ~= rule.rate or`,
		new:    `if not rate or`,
		by:     redisstore("TestBatchReadsAhead"),
	},
	{
		name:   "a-clock-set-back",
		breaks: "A clock that is set back is shown as it is.",
		at:     "clock forward.Now",
		old:    `if t <= last && last != 0 {`,
		new:    `if t == last {`,
		by:     clocks("TestForwardNeverGoesBack"),
	},
	{
		name:   "a-window-shifts",
		breaks: "The short way books units of an older bucket on the newest.",
		at:     "internal/redisstore/lua/batch.lua",
		old:    `if top > new then`,
		new:    `if false then`,
		by:     redisstore("TestShortWayIsTheSame"),
	},
	{
		name:   "a-stranger-overwritten",
		breaks: "The short way puts a new counter in the place of something of another type.",
		at:     "internal/redisstore/lua/batch.lua",
		old:    `'PX', spelling, 'NX')`,
		new:    `'PX', spelling)`,
		by:     redisstore("TestShortWayIsTheSame"),
	},
}
