package hybrid_test

import "flag"

// The simulator's flags (see package sim) are taken everywhere, so that they
// can be given to ./... as well.
var (
	_ = flag.Uint64("sim.seed", 1, "see package sim")
	_ = flag.Int("sim.runs", 150, "see package sim")
)
