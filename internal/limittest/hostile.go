package limittest

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// HostileKey returns a key as an attacker may choose it: a megabyte of control bytes, commands for
// terminals, bytes that are not UTF-8, quotes and ends of lines.
func HostileKey() string {
	const part = "\x00\x1b]0;owned\a\x1b[2J\u009b1m\xff\xfe\u202e\"\\\r\n\tlevel=ERROR"
	return strings.Repeat(part, 1<<20/len(part)+1)
}

// CheckError fails unless the text of an error has at most so many bytes, all of which are
// characters that can be printed.
func CheckError(tb testing.TB, what string, err error, most int) {
	tb.Helper()
	if err == nil {
		tb.Errorf("%s: no error", what)
		return
	}
	text := err.Error()
	if len(text) > most {
		tb.Errorf("%s: %d bytes, want %d at most: %.400q", what, len(text), most, text)
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		tb.Errorf("%s: what cannot be printed in %.400q", what, text)
	}
}
