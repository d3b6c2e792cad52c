package main

import (
	"math"
	"strconv"
	"strings"
)

// table is one in Markdown: the first column are names, the others figures.
type table struct {
	head []string
	rows [][]string
}

func newTable(head ...string) *table { return &table{head: head} }

// add appends a row. Missing cells are empty.
func (t *table) add(cells ...string) {
	for len(cells) < len(t.head) {
		cells = append(cells, "")
	}
	t.rows = append(t.rows, cells)
}

func (t *table) write(b *strings.Builder) {
	if len(t.rows) == 0 {
		return
	}
	line := func(cells []string) {
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	line(t.head)
	b.WriteString("| ---" + strings.Repeat(" | ---:", len(t.head)-1) + " |\n")
	for _, r := range t.rows {
		line(r)
	}
	b.WriteString("\n")
}

// figure writes a number with three digits that mean something.
func figure(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case a >= 99.95:
		return thousands(strconv.FormatFloat(v, 'f', 0, 64))
	case a >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.01:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// thousands puts commas into the digits of a whole number.
func thousands(digits string) string {
	sign := ""
	if rest, negative := strings.CutPrefix(digits, "-"); negative {
		sign, digits = "-", rest
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}
