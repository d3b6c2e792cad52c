package escape

import (
	"regexp"
	"strconv"
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

// cutOff is what stands at the end of a text that is cut: a part of its hash.
var cutOff = regexp.MustCompile(`…[0-9a-f]{8}"$`)

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
		for _, r := range cutOff.ReplaceAllString(out, "") {
			if r < ' ' || r > '~' {
				t.Errorf("%.100q: %q in it", text, r)
			}
		}
		if len(text) <= 10 && strings.Contains(out, "…") {
			t.Errorf("%q is cut: %s", text, out)
		}
		if len(text) > MaxQuoted && !cutOff.MatchString(out) {
			t.Errorf("%.100q does not look cut: %s", text, out)
		}
		if other := text + "x"; Quote(other) == out {
			t.Errorf("%.100q and one more letter look alike: %s", text, out)
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
		{strings.Repeat("x", 63), `"` + strings.Repeat("x", 51) + `…75220b47"`, strings.Repeat("x", 37) + "…"},
		{strings.Repeat("x", 58) + "é", `"` + strings.Repeat("x", 51) + `…f4f9b02a"`, strings.Repeat("x", 37) + "…"}, // no half of an escape
	} {
		if got := Quote(c.text); got != c.quoted {
			t.Errorf("%q in quotes is %s, want %s", c.text, got, c.quoted)
		}
		if got := Plain(c.text, 40); got != c.plain {
			t.Errorf("%q is %s, want %s", c.text, got, c.plain)
		}
	}
}

// Two texts look different, and what a text looks like can be printed.
//
// Fault 115: keys that look alike, and keys of bytes that a terminal takes for a command.
func FuzzDistinct(f *testing.F) {
	for _, text := range texts {
		f.Add(text, text+" ")
	}
	for _, pair := range [][2]string{{"a b", "a  b"}, {"alice", "аlice"}, {"é", "e\u0301"}, {"\n", `\n`}, {`"a "`, "a "}, {"\ufffd", "\xff"}, {`é "\u00e9"`, "é"}} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := Distinct(a), Distinct(b)
		if a != b && x == y {
			t.Errorf("%q and %q are both %s", a, b, x)
		}
		if !utf8.ValidString(x) || strings.ContainsFunc(x, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is %q", a, x)
		}
	})
}

func TestDistinct(t *testing.T) {
	for text, want := range map[string]string{
		"alice": "alice", "alice ": `"alice "`, " alice": `" alice"`, "a b": "a b", "a  b": `"a  b"`, "a@b.c:1/2": "a@b.c:1/2", "": `""`,
		"jürgen": `jürgen "j\u00fcrgen"`, "\xff": `"\xff"`, `a"b`: `"a\"b"`, `a\b`: `"a\\b"`, "a\tb": `"a\tb"`, "\u202ea": `"\u202ea"`, "\u00a0": `"\u00a0"`,
	} {
		if got := Distinct(text); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

// What JSON can have as it is needs no other form, and what it cannot comes back from this one.
func TestExact(t *testing.T) {
	for _, text := range texts {
		exact := Exact(text)
		if back, err := strconv.Unquote(exact); utf8.ValidString(text) != (exact == "") || exact != "" && (back != text || err != nil) {
			t.Errorf("%.100q: %.100s", text, exact)
		}
	}
}
