// Package limit holds the words that every limiter of this module shares: a
// [Rule] says what is allowed, a [Result] says what was decided, and the errors
// say what was wrong with a question.
//
// The package decides nothing, keeps no state and imports the standard library
// alone. Its arithmetic ([Span] and the methods of Rule that use it) is exact:
// integers with a remainder, so that a rate such as 7 per 3 s does not drift.
package limit
