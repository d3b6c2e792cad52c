package main

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

//go:embed table.txt
var tableText string

// table returns all mutants: which test catches which.
func table() []mutant {
	list, err := parseTable(tableText)
	if err != nil {
		panic(err) // the tests of this package read it
	}
	return list
}

// parseTable reads mutants, one in a line, with a tab between: its name, what it breaks, the test that catches it, where
// it is, the text there, and the text in its place. In both texts \n is a new line, \t a tab, and \\ a backslash. A
// line that begins with # is a comment. A test of the simulator is followed by a number of seeds.
func parseTable(text string) (list []mutant, err error) {
	unescape := strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t")
	for i, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) == 5 {
			f = append(f, "") // an editor may have removed the last tab
		}
		if len(f) != 6 {
			return nil, fmt.Errorf("line %d has %d fields, not 6", i+1, len(f))
		}
		by, runs, _ := strings.Cut(f[2], " ")
		dot := strings.LastIndexByte(by, '.')
		if dot < 0 {
			return nil, fmt.Errorf("line %d: %q is not package.Test", i+1, by)
		}
		m := mutant{name: f[0], breaks: f[1], at: f[3], old: unescape.Replace(f[4]), new: unescape.Replace(f[5]), by: check{pkg: by[:dot], test: by[dot+1:]}}
		if runs != "" {
			if m.by.runs, err = strconv.Atoi(runs); err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
		}
		list = append(list, m)
	}
	return list, nil
}

// drawn returns one of every so many mutants, which a seed chooses.
func drawn(list []mutant, every int, seed uint64) (some []mutant) {
	order := rand.New(rand.NewPCG(seed, 0)).Perm(len(list))
	for _, i := range order[:(len(list)+every-1)/every] {
		some = append(some, list[i])
	}
	return some
}
