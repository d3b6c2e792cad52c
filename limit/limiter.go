package limit

// Limiter is what a service needs of a limiter that answers from memory, as those of
// packages local and hybrid do: take it as the type of a parameter, and a test can
// pass a fake. Its methods must be safe for concurrent use. They refuse a question
// that cannot be asked: a negative n, or a rule that is nil or not supported.
type Limiter interface {
	// Allow tells whether one unit of key was admitted under rule.
	Allow(key string, rule *Rule) bool
	// AllowN is Allow of n units, all or none.
	AllowN(key string, rule *Rule, n int64) bool
	// Take is AllowN with the whole answer. 0 units consume nothing.
	Take(key string, rule *Rule, n int64) Result
	// Peek tells what Take of one unit would answer.
	Peek(key string, rule *Rule) Result
}
