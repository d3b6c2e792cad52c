package main

// fleetMutants break what shows only when all nodes are added up.
var fleetMutants = []mutant{
	{
		name:   "flight-from-before-a-set-counts",
		breaks: "A flight that Redis has booked before a Set, and whose answer was lost, is told again as if it had come after.",
		at:     "internal/counter Counter.answeredLocked",
		old:    `floor := ours && !(theirs && a.Converted) && !before`,
		new:    `floor := ours && !(theirs && a.Converted)`,
		by:     counters("TestFlightFromBeforeASet"),
	},
	{
		name:   "nothing-told-again",
		breaks: "Of data that Redis has lost only that comes back which is admitted again.",
		at:     "internal/reconcile Machine.reseedNow",
		old:    `if s.reseed && k.MarkRestore(c.local) {`,
		new:    `if s.reseed && k.MarkRestore(c.local) && false {`,
		by:     sim(300),
	},
}
