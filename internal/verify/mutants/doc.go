// Command mutants checks the tests: it puts bugs into the limiter on purpose,
// one at a time, and fails unless the test that is to catch each of them does.
//
//	go run ./internal/verify/mutants                     # all of them, from the root
//	go run ./internal/verify/mutants -list               # what they break, and what catches which
//	go run ./internal/verify/mutants -run 'known|dedup'  # some
//	go run ./internal/verify/mutants -every 20 -draw 7   # a twentieth
//	go run ./internal/verify/mutants -seed 100000        # with other seeds for the simulator
//	go run ./internal/verify/mutants -run dedup -overlay /tmp  # write files for "go build -overlay"
//
// The list is table.txt, with one mutant in a line. A mutant names a function, a method
// (Type.Method), a type, a constant or a variable, and a piece of its text. It
// may move to another file of its package, and be written with other blanks and
// comments. In scripts a mutant names the file. Its text must occur exactly
// once: if it no longer does, the mutant is stale and has to be brought up to
// date with the code, which the tests of this package notice too. No file is
// changed: the compiler is told to read another text in its place.
//
// A mutant counts as caught if the test that it names says "--- FAIL". A mutant
// that does not compile, panics or runs into a time-out shows nothing. Before
// all that the tests must pass on the code as it is. The exit code is 1 if a
// mutant survived, 2 if the check itself could not be done.
package main
