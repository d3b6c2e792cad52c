// Package verify has the programs that check promises beyond what tests can, in a module of its
// own. The one in mutants checks the tests: it breaks the code on purpose, and a test must notice.
// The one in soak runs nodes on a Redis with faults of all kinds for as long as asked, and watches
// that nothing is lost or grows.
package verify
