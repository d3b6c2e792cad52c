package rules

import (
	"fmt"
	"slices"
	"strings"
)

// maxProblems bounds how many problems of a file are reported. Whoever has more of them
// begins with these.
const maxProblems = 100

// Problem is one mistake in a rules file.
type Problem struct {
	File string `json:"file"` // as it was given to [Parse], [Load] or [Watch]
	// Line and Column are where the mistake is, both from 1. A column counts characters. Of
	// what is missing it is where that would belong; of a file that cannot be read, 0 and 0.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Field is the path of the field, such as rules.api.limit or
	// overrides[key=acme].plan. It is empty if the mistake is in no field.
	Field string `json:"field,omitempty"`
	// Message says in plain words what is wrong and what is allowed.
	Message string `json:"message"`
	// Err is the cause, if that is an error of the system such as fs.ErrNotExist.
	Err error `json:"-"`
}

// String returns file:line:column: field: message, as compilers do, without a place that is not known.
func (p Problem) String() string {
	at := p.File + ": "
	if p.Line > 0 {
		at = fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
	}
	if p.Field != "" {
		at += p.Field + ": "
	}
	return at + p.Message
}

// Problems is all that is wrong with a file, in the order of the lines. It is the error of
// [Parse], [Load], [Watch] and [File.Reload]; use errors.As to get at it.
type Problems []Problem

// Error returns one line for each problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the causes, so that errors.Is finds fs.ErrNotExist and the like.
func (ps Problems) Unwrap() (errs []error) {
	for _, p := range ps {
		if p.Err != nil {
			errs = append(errs, p.Err)
		}
	}
	return errs
}

// mostLogged is how many problems are logged. A line of a log has a bound in most systems.
const mostLogged = 10

// lines returns the problems for a log: one text each, and how many more there are.
func (ps Problems) lines() (list []string) {
	for _, p := range ps[:min(len(ps), mostLogged)] {
		list = append(list, strings.ReplaceAll(p.String(), "\n", " "))
	}
	if more := len(ps) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more: hybridlimit validate shows them", more))
	}
	return list
}

// collector gathers the problems of one file.
type collector struct {
	file     string
	problems Problems
	skipped  int
}

// add notes a problem at a place.
func (c *collector) add(at place, field, format string, args ...any) {
	if c.full() {
		c.skipped++
		return
	}
	c.problems = append(c.problems, Problem{
		File: c.file, Line: max(at.line, 1), Column: max(at.column, 1), Field: field, Message: fmt.Sprintf(format, args...),
	})
}

// full reports whether no more problems are reported.
func (c *collector) full() bool { return len(c.problems) >= maxProblems }

// count returns how many problems there were, reported or not.
func (c *collector) count() int { return len(c.problems) + c.skipped }

// result returns what was gathered, in the order of the lines; nil if there is nothing.
func (c *collector) result() Problems {
	slices.SortStableFunc(c.problems, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	if c.skipped > 0 {
		last := c.problems[len(c.problems)-1]
		last.Field, last.Message = "", fmt.Sprintf("%d more problems are not shown", c.skipped)
		c.problems = append(c.problems, last)
		c.skipped = 0
	}
	return c.problems
}

// failed returns the one problem of a file that cannot be read or taken as a whole.
func failed(file, message string, err error) Problems {
	return Problems{{File: file, Message: message, Err: err}}
}
