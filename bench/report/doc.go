// Command report measures and writes what bench/results holds: raw results,
// tables of medians and ratios, plots, and whether the project's targets are met.
//
//	go run ./bench/report                                  # all of it, from the root: takes long
//	go run ./bench/report -count 1 -benchtime 10ms         # a first impression
//	go run ./bench/report -parts memory -memory.count 1    # one part; the others as recorded
//	go run ./bench/report -parts cost                      # bench/cost, with a page and a plot of its own
//	go run ./bench/report -parts small                     # bench/small, likewise
//	go run ./bench/report -parts outage                    # bench/demo, a plot
//	go run ./bench/report -from bench/results              # tables and plots again, from what is recorded
//
// Raw results are files raw-*.txt in the form of Go's benchmarks, so that benchstat
// reads them too. The same raw results give the same pages and plots, byte for
// byte. Figures are medians, and are compared within a file only: a file is one
// run on one machine.
//
// Names of benchmarks are paths: Allow/<limiter>/…/<serial or parallel>. What is
// between is the load. The pages show what people compare; raw results have the rest.
// A target whose figures are missing is "not measured".
package main
