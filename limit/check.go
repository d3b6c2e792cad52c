package limit

// Check asks for N units of a key under a rule, together with other checks. An N
// of 0, which is that of an unset field, means 1: a forgotten N must not let
// everything pass. So no Check only reads; Peek of a limiter reads one key. Rules
// that limit the same caller need different names: the name selects the counter.
type Check struct {
	Key  string
	Rule *Rule
	N    int64
}

// AllResult is the answer of a limiter's TakeAll to several checks.
type AllResult struct {
	// Result is that of the check with the index By. Allowed holds for all checks:
	// either every check has consumed its units, or none has.
	Result
	// By is the index of the check that decided: of the checks that refused, the
	// one with the longest RetryAfter, so that this wait is enough for all. If none
	// refused: a dry run that would have refused, else the check with the fewest
	// units remaining. -1 if there were no checks.
	By int
	// Rule is the rule of that check, nil if it has none.
	Rule *Rule
}
