package limit

// Limiter is the interface of a limiter that answers from memory, as those of packages
// local and hybrid do. Use it as the type of a parameter, so that a test can pass a fake.
// Its methods must be safe for concurrent use. They refuse invalid arguments: a negative
// n, or a rule that is nil or not supported.
type Limiter interface {
	// Allow reports whether one unit of key was admitted under rule.
	Allow(key string, rule *Rule) bool
	// AllowN is Allow for n units: all or none are admitted.
	AllowN(key string, rule *Rule, n int64) bool
	// Take is AllowN with the whole answer. 0 units consume nothing.
	Take(key string, rule *Rule, n int64) Result
	// Peek returns what Take of one unit would answer.
	Peek(key string, rule *Rule) Result
}
