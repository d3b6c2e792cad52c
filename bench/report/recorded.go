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
	for _, to := range []struct {
		part string
		res  **results
	}{{partBench, &r.bench}, {partMemory, &r.memory}, {partAccuracy, &r.accuracy}, {partCost, &r.cost}, {partSmall, &r.small}, {partOutage, &r.outage}} {
		*to.res = newResults()
		f, err := os.Open(rawFile(dir, to.part))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return r, err
		}
		defer f.Close()
		found++
		if *to.res, err = parse(f); err != nil {
			return r, fmt.Errorf("%s: %w", f.Name(), err)
		}
	}
	if found == 0 {
		return r, fmt.Errorf("no raw results in %s", dir)
	}
	return r, nil
}
