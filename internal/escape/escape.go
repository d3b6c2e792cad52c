// Package escape makes texts that come from elsewhere, such as keys, fit for errors and for logs:
// short, on one line, and without what a terminal takes for a command.
package escape

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxQuoted is the largest number of bytes that [Quote] returns, quotes included.
const MaxQuoted = 64

// cutMark stands where a text was cut off.
const cutMark = "…"

// Quote returns a text such as a key in quotes, escaped as in Go and in ASCII. What is longer than
// MaxQuoted bytes is cut, and then ends with "…" and eight digits of its hash, so that texts with the
// same beginning differ.
func Quote(text string) string {
	const most = MaxQuoted - len(`""`)
	short := shorten(text, most, strconv.AppendQuoteToASCII)
	if strings.HasSuffix(short, cutMark) {
		sum := sha256.Sum256([]byte(text))
		digits := hex.EncodeToString(sum[:4])
		short = shorten(text, most-len(digits), strconv.AppendQuoteToASCII) + digits
	}
	return `"` + short + `"`
}

// Distinct returns a text such as a key so that people can tell it from any other. What is printed in
// ASCII and has no space at an end or beside another stays as it is. All else is in quotes, escaped as
// in Go and in ASCII. If it has letters of other languages it is in front of that as it is read.
func Distinct(text string) string {
	plain := text != "" && text[0] != ' ' && text[len(text)-1] != ' ' && !strings.Contains(text, "  ")
	readable := utf8.ValidString(text)
	for _, r := range text {
		plain = plain && r >= ' ' && r <= '~' && r != '"' && r != '\\'
		readable = readable && unicode.IsPrint(r)
	}
	if plain {
		return text
	}
	quoted := strconv.QuoteToASCII(text)
	if readable && len(quoted) > len(strconv.Quote(text)) {
		return text + " " + quoted
	}
	return quoted
}

// Exact returns a text in quotes, as in Go and in ASCII, if JSON cannot have it as it is; else it is empty.
func Exact(text string) string {
	if utf8.ValidString(text) {
		return ""
	}
	return strconv.QuoteToASCII(text)
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
