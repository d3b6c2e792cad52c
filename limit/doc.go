// Package limit holds the words that every limiter of this module shares: a
// [Rule] says what is allowed, a [Result] says what was decided, and the errors
// say what was wrong with a question.
//
// The package decides nothing and keeps no state. Its arithmetic is exact: integers
// with a remainder, so that a rate such as 7 per 3 s does not drift. Those methods of
// Rule that return a type of an internal package are for the limiters of this module.
package limit
