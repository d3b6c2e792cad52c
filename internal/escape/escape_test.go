package escape

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var texts = []string{
	"", "user:42", "\n", `"`, `\`, "é", "\u202e", "\x1b]0;x\a", "\x9b2J", "\u009b2J", "\xff\xfe", "\U0001f600", strings.Repeat("x", 61), strings.Repeat("x", 62),
	strings.Repeat("x", 63), strings.Repeat("\xff", 1<<10), strings.Repeat("é", 31), strings.Repeat("x\x00\x1b[2J\xff\u009b", 1<<17),
}

// A text in quotes is short, on one line, and looks like no other field.
func FuzzQuote(f *testing.F) {
	for _, text := range texts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		out := Quote(text)
		if len(out) > MaxQuoted || len(out) < 2 || out[0] != '"' || out[len(out)-1] != '"' {
			t.Errorf("%.100q: %d bytes: %s", text, len(out), out)
		}
		for _, r := range strings.TrimSuffix(out, `…"`) {
			if r < ' ' || r > '~' {
				t.Errorf("%.100q: %q in it", text, r)
			}
		}
		if len(text) <= 10 && strings.Contains(out, "…") {
			t.Errorf("%q is cut: %s", text, out)
		}
		if len(text) > MaxQuoted && !strings.HasSuffix(out, `…"`) {
			t.Errorf("%.100q does not look cut: %s", text, out)
		}
	})
}

// A text without quotes is as short as is said, and on one line.
func FuzzPlain(f *testing.F) {
	for i, text := range texts {
		f.Add(text, 3+i*10)
	}
	f.Fuzz(func(t *testing.T, text string, most int) {
		if most < len(cutMark) || most > 1000 {
			return
		}
		out := Plain(text, most)
		if len(out) > most || !utf8.ValidString(out) || strings.ContainsFunc(out, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%.100q, at most %d: %d bytes: %q", text, most, len(out), out)
		}
		if len(text) > most && !strings.HasSuffix(out, cutMark) {
			t.Errorf("%.100q does not look cut at %d: %s", text, most, out)
		}
	})
}

func TestTexts(t *testing.T) {
	for _, c := range []struct{ text, quoted, plain string }{
		{"user:42", `"user:42"`, "user:42"},
		{`say "é"`, `"say \"\u00e9\""`, `say "é"`},
		{"\x1b[2J\n\u009b\xff\u202e", `"\x1b[2J\n\u009b\xff\u202e"`, `\x1b[2J\n\u009b\xff\u202e`},
		{strings.Repeat("x", 62), `"` + strings.Repeat("x", 62) + `"`, strings.Repeat("x", 37) + "…"},
		{strings.Repeat("x", 63), `"` + strings.Repeat("x", 59) + `…"`, strings.Repeat("x", 37) + "…"},
		{strings.Repeat("x", 58) + "é", `"` + strings.Repeat("x", 58) + `…"`, strings.Repeat("x", 37) + "…"}, // no half of an escape
	} {
		if got := Quote(c.text); got != c.quoted {
			t.Errorf("%q in quotes is %s, want %s", c.text, got, c.quoted)
		}
		if got := Plain(c.text, 40); got != c.plain {
			t.Errorf("%q is %s, want %s", c.text, got, c.plain)
		}
	}
}
