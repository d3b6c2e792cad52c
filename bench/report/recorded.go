package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// The parts of a measurement, each with a raw file of its own.
const (
	partBench    = "bench"
	partMemory   = "memory"
	partAccuracy = "accuracy"
	partCost     = "cost"
	partSmall    = "small"
	partOutage   = "outage"
)

var parts = []string{partBench, partMemory, partAccuracy, partCost, partSmall, partOutage}

// ownPage is a page about one part alone, with a plot.
type ownPage struct {
	page, plot string
	write      func(r recorded, plots map[string][]byte) string
}

// ownPages are the parts that have such a page. The others share one.
var ownPages = map[string]ownPage{
	partCost:   {costPage, plotCost, writeCost},
	partSmall:  {smallPage, plotSmall, writeSmall},
	partOutage: {outagePage, plotOutage, writeOutage},
}

func sharesPage(part string) bool {
	_, own := ownPages[part]
	return !own
}

func rawFile(dir, part string) string { return filepath.Join(dir, "raw-"+part+".txt") }

// recorded is what all raw files say. A part that was never measured is empty.
type recorded struct{ bench, memory, accuracy, cost, small, outage *results }

func (r recorded) part(name string) *results {
	switch name {
	case partBench:
		return r.bench
	case partMemory:
		return r.memory
	case partCost:
		return r.cost
	case partSmall:
		return r.small
	case partOutage:
		return r.outage
	}
	return r.accuracy
}

// load reads the raw files of a directory. At least one must be there.
func load(dir string) (r recorded, err error) {
	found := 0
	read := func(part string) *results {
		f, openErr := os.Open(rawFile(dir, part))
		if openErr != nil {
			if !errors.Is(openErr, fs.ErrNotExist) {
				err = errors.Join(err, openErr)
			}
			return newResults()
		}
		defer f.Close()
		found++
		res, parseErr := parse(f)
		if parseErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", f.Name(), parseErr))
			return newResults()
		}
		return res
	}
	r = recorded{read(partBench), read(partMemory), read(partAccuracy), read(partCost), read(partSmall), read(partOutage)}
	if err == nil && found == 0 {
		err = fmt.Errorf("no raw results in %s", dir)
	}
	return r, err
}
