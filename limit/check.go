package limit

// Check is one question of several that are asked together: may N units of a
// key be taken under a rule. An N of 0, as of a Check that does not say, means 1:
// a limit that is forgotten must not let everything pass. So no Check only looks;
// Peek of a limiter does, at one key. Give several limits of one caller different
// names: by its name a rule counts.
type Check struct {
	Key  string
	Rule *Rule
	N    int64
}

// Units returns how many units q asks for: N, or 1 if that is 0.
func (q *Check) Units() int64 {
	if q.N == 0 {
		return 1
	}
	return q.N
}

// AllResult is the answer to several checks that were asked together, by TakeAll of a
// limiter.
type AllResult struct {
	// Result is that of one check, the one By names. Allowed holds for all of
	// them: either every check has consumed its units, or none has.
	Result
	// By is the index of the check that decided: of those that refused the one
	// with the longest RetryAfter, so that waiting for it is enough; else one
	// that would have, had its rule not been a dry run; else the one with the
	// fewest units remaining. -1 if there were no checks.
	By int
	// Rule is the rule of that check, nil if it has none.
	Rule *Rule
}
