// Package escape makes texts that come from elsewhere, such as keys, fit for errors and for logs:
// short, on one line, and without what a terminal takes for a command.
package escape

import (
	"strconv"
	"unicode/utf8"
)

// MaxQuoted is the largest number of bytes that [Quote] returns, quotes included.
const MaxQuoted = 64

// cutMark stands where a text was cut off.
const cutMark = "…"

// Quote returns a text such as a key in quotes, escaped as in Go and in ASCII. What is longer than
// MaxQuoted bytes is cut, and then ends with "…" inside the quotes.
func Quote(text string) string {
	return `"` + shorten(text, MaxQuoted-len(`""`), strconv.AppendQuoteToASCII) + `"`
}

// Plain returns a text such as the reason of an error without quotes around it, and at most so many
// bytes of it, 3 or more: what is longer ends with "…". What cannot be printed is escaped as in Go. Letters of
// all languages, and quotes, stay as they are.
func Plain(text string, most int) string {
	return shorten(text, most, func(b []byte, s string) []byte {
		if s == `"` {
			return append(b, `"""`...)
		}
		return strconv.AppendQuote(b, s)
	})
}

// shorten escapes a text, one character after another, until it has more than most bytes. quote
// appends a character in quotes, which are left out.
func shorten(text string, most int, quote func(b []byte, s string) []byte) string {
	var room [MaxQuoted + 16]byte
	b, cut := room[:0], 0
	for i := 0; i < len(text); {
		_, n := utf8.DecodeRuneInString(text[i:])
		var one [16]byte
		quoted := quote(one[:0], text[i:i+n])
		b = append(b, quoted[1:len(quoted)-1]...)
		if len(b) > most {
			return string(b[:cut]) + cutMark
		}
		if len(b) <= most-len(cutMark) {
			cut = len(b)
		}
		i += n
	}
	return string(b)
}
