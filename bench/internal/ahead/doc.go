// Package ahead lets a benchmark have at hand what it is going to need, so that it does
// not measure how long that takes.
package ahead
