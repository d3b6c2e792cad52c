package screen

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// gap is how many columns are between two of a table.
const gap = 2

// Column is one of a [Table].
type Column struct {
	Title string
	Right bool // to the right, for numbers
	// Least is how narrow the column may become if there is no room: 0 for as wide as
	// its texts.
	Least int
	// Tell ends texts that are cut with a part of their hash, so that those with the same beginning
	// differ.
	Tell bool
}

// Cell is a text in a style.
type Cell struct {
	Text  string
	Style Style
}

// Table is rows under titles. The zero Table has no columns.
type Table struct {
	Columns []Column
	Rows    [][]Cell
}

// Add appends a row of plain texts.
func (t *Table) Add(texts ...string) {
	row := make([]Cell, len(texts))
	for i, text := range texts {
		row[i].Text = text
	}
	t.Rows = append(t.Rows, row)
}

// Table prints a table that is no wider than the screen: texts in columns that may become
// narrower are cut, which an ellipsis shows.
func (s *Screen) Table(t *Table) error {
	widths := t.widths(s.Width)
	head := make([]Cell, len(t.Columns))
	titled := false
	for i, c := range t.Columns {
		head[i] = Cell{c.Title, Faint}
		titled = titled || c.Title != ""
	}
	if titled {
		if err := s.row(t, widths, head); err != nil {
			return err
		}
	}
	return s.rows(t, widths)
}

// Rows prints a table without its titles.
func (s *Screen) Rows(t *Table) error { return s.rows(t, t.widths(s.Width)) }

func (s *Screen) rows(t *Table, widths []int) error {
	for _, row := range t.Rows {
		if err := s.row(t, widths, row); err != nil {
			return err
		}
	}
	return nil
}

// widths returns how wide each column is to be.
func (t *Table) widths(room int) []int {
	widths := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		widths[i] = ansi.StringWidth(c.Title)
	}
	for _, row := range t.Rows {
		for i, c := range row {
			widths[i] = max(widths[i], ansi.StringWidth(c.Text))
		}
	}
	total := gap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for total > room {
		widest := -1 // of those that may become narrower
		for i, c := range t.Columns {
			if c.Least > 0 && widths[i] > c.Least && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break // nothing gives way: rather too wide than wrong
		}
		widths[widest]--
		total--
	}
	return widths
}

// cut returns a text that is no wider than so many columns.
func cut(text string, width int, tell bool) string {
	if !tell || ansi.StringWidth(text) <= width {
		return ansi.Truncate(text, width, "…")
	}
	sum := sha256.Sum256([]byte(text))
	tail := "…" + hex.EncodeToString(sum[:3])
	return ansi.Truncate(text, max(width-ansi.StringWidth(tail), 0), "") + tail
}

func (s *Screen) row(t *Table, widths []int, row []Cell) error {
	var b strings.Builder
	for i, c := range row {
		text := cut(c.Text, widths[i], t.Columns[i].Tell)
		pad := strings.Repeat(" ", max(widths[i]-ansi.StringWidth(text), 0))
		if i > 0 {
			b.WriteString(strings.Repeat(" ", gap))
		}
		switch {
		case t.Columns[i].Right:
			b.WriteString(pad + c.Style.Text(text))
		case i == len(row)-1:
			b.WriteString(c.Style.Text(text))
		default:
			b.WriteString(c.Style.Text(text) + pad)
		}
	}
	_, err := fmt.Fprintln(s.out, strings.TrimRight(b.String(), " "))
	return err
}
