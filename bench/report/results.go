package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// results is what one raw file says.
type results struct {
	config map[string]string // lines such as "cpu: …"
	rows   []*row            // in the order of the file
	byName map[string]*row
}

// row is one benchmark, run once or several times.
type row struct {
	name   string   // without "Benchmark" and the number of processors
	path   []string // the name's segments
	values map[string][]float64
}

// newResults returns an empty file's.
func newResults() *results {
	return &results{config: map[string]string{}, byName: map[string]*row{}}
}

// parse reads a raw file. Lines that are neither results nor configuration are
// passed over, as Go's own tools do.
func parse(r io.Reader) (*results, error) {
	res := newResults()
	var lines [][]string
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		line := scan.Text()
		if f := strings.Fields(line); len(f) >= 4 && len(f)%2 == 0 && strings.HasPrefix(f[0], "Benchmark") {
			lines = append(lines, f)
		} else if key, value, ok := strings.Cut(line, ": "); ok && isConfigKey(key) {
			if _, known := res.config[key]; !known { // the header comes first
				res.config[key] = strings.TrimSpace(value)
			}
		}
	}
	if err := scan.Err(); err != nil {
		return nil, err
	}
	suffix := "" // what the testing package has put behind each name, but on one processor
	if procs := res.config["procs"]; procs != "1" {
		suffix = "-" + procs
	}
	for _, f := range lines {
		if err := res.add(strings.TrimSuffix(strings.TrimPrefix(f[0], "Benchmark"), suffix), f[1:]); err != nil {
			return nil, fmt.Errorf("%s: %w", f[0], err)
		}
	}
	return res, nil
}

// isConfigKey: by the format of Go's benchmarks such a key begins with a
// lower-case letter and has no spaces or capitals.
func isConfigKey(key string) bool {
	return key != "" && key[0] >= 'a' && key[0] <= 'z' && !strings.ContainsFunc(key, func(r rune) bool {
		return r == ' ' || r == '\t' || r >= 'A' && r <= 'Z'
	})
}

// add takes in a run: the iterations, then figures and their units.
func (res *results) add(name string, fields []string) error {
	if _, err := strconv.ParseInt(fields[0], 10, 64); err != nil {
		return err
	}
	path := strings.Split(name, "/")
	for i, word := range path {
		if word == "funnel" { // so older records call this algorithm
			path[i] = "token-bucket"
		}
	}
	name = strings.Join(path, "/")
	r := res.byName[name]
	if r == nil {
		r = &row{name: name, path: path, values: map[string][]float64{}}
		res.byName[name] = r
		res.rows = append(res.rows, r)
	}
	for i := 1; i+1 < len(fields); i += 2 {
		v, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return err
		}
		r.values[fields[i+1]] = append(r.values[fields[i+1]], v)
	}
	return nil
}

// bench returns the rows of one benchmark function.
func (res *results) bench(name string) (rows []*row) {
	for _, r := range res.rows {
		if r.path[0] == name {
			rows = append(rows, r)
		}
	}
	return rows
}

// median returns the figure of a row by its full name.
func (res *results) median(name, unit string) (float64, bool) {
	r := res.byName[name]
	if r == nil {
		return 0, false
	}
	return r.median(unit)
}

func (r *row) median(unit string) (float64, bool) {
	list := r.values[unit]
	if len(list) == 0 {
		return 0, false
	}
	return median(list), true
}

// has tells whether one of the row's segments, after the first, is a word.
func (r *row) has(word string) bool { return slices.Contains(r.path[1:], word) }
