// Package screen prints what commands have to say: for people as tables that fit a
// terminal, for programs as JSON.
package screen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
)

const (
	// Width is how many columns there are where nothing else is known.
	Width = 80
	// narrowest and widest bound what a terminal may say.
	narrowest, widest = 40, 240
)

// Screen is where a command prints. Build one with [New].
type Screen struct {
	JSON     bool // for programs
	Terminal bool // whether somebody looks at it
	Width    int  // in columns

	out io.Writer
}

// New returns a screen that prints to out. There are colours if out is a terminal and the
// environment does not forbid them, by NO_COLOR for example.
func New(out io.Writer, environ []string) *Screen {
	w := colorprofile.NewWriter(out, environ)
	for _, v := range environ {
		if value, set := strings.CutPrefix(v, "NO_COLOR="); set && value != "" {
			w.Profile = colorprofile.NoTTY // whatever else says that there should be some
		}
	}
	s := &Screen{Width: Width, out: w}
	if f, ok := out.(*os.File); ok && term.IsTerminal(f.Fd()) {
		s.Terminal = true
		if width, _, err := term.GetSize(f.Fd()); err == nil && width > 0 {
			s.Width = min(max(width, narrowest), widest)
		}
	}
	return s
}

// Style is how a text looks.
type Style uint8

// The styles. Without colours all look alike, so that none carries a meaning of its own.
const (
	Plain Style = iota
	Faint
	Strong
	Good
	Warn
	Bad
)

var styles = [...]lipgloss.Style{
	Plain:  lipgloss.NewStyle(),
	Faint:  lipgloss.NewStyle().Faint(true),
	Strong: lipgloss.NewStyle().Bold(true),
	Good:   lipgloss.NewStyle().Foreground(lipgloss.Green),
	Warn:   lipgloss.NewStyle().Foreground(lipgloss.Yellow),
	Bad:    lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true),
}

// Text returns a text in a style.
func (st Style) Text(text string) string {
	if text == "" || st == Plain {
		return text
	}
	return styles[st].Render(text)
}

// Object prints a value as indented JSON, and a newline.
func (s *Screen) Object(v any) error { return s.json(v, "  ") }

// Record prints a value as one line of JSON.
func (s *Screen) Record(v any) error { return s.json(v, "") }

func (s *Screen) json(v any, indent string) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := s.out.Write(escaped(text.Bytes()))
	return err
}

// escaped returns JSON in which what a terminal may take for a command is escaped. Package json
// does so below U+0020 alone, but a key may begin a command with U+009B, too.
func escaped(text []byte) []byte {
	if !bytes.ContainsFunc(text, unseen) {
		return text
	}
	out := make([]byte, 0, len(text)+len(text)/8)
	for _, r := range string(text) {
		if !unseen(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}

// unseen reports whether r is no character that is printed; JSON has them in strings alone.
func unseen(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }

// Line prints a line, wrapped where it is too long. Lines after the first are indented.
func (s *Screen) Line(st Style, indent int, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	lines := strings.Split(ansi.Wrap(text, s.Width-indent, ""), "\n")
	for i, line := range lines {
		if i > 0 {
			line = strings.Repeat(" ", indent) + strings.TrimLeft(line, " ")
		}
		if _, err := fmt.Fprintln(s.out, st.Text(strings.TrimRight(line, " "))); err != nil {
			return err
		}
	}
	return nil
}

// Up moves to the beginning of the line so many lines above, and clears from there on.
func (s *Screen) Up(lines int) error {
	if lines <= 0 {
		return nil
	}
	_, err := fmt.Fprint(s.out, ansi.CursorUp(lines), "\r", ansi.EraseScreenBelow)
	return err
}

// Clean returns a text that comes from elsewhere, such as a key, fit to be shown: what a
// terminal would not print as it is, is escaped as in Go.
func Clean(text string) string {
	quoted := fmt.Sprintf("%q", text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
