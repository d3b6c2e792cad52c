package resp

import "strconv"

// split appends the words of a line as redis-cli and Redis divide it: by white space, with
// "quotes" in which a backslash escapes, and 'quotes' in which it escapes only a quote. Quotes
// may begin within a word and must end one.
func split(words [][]byte, line []byte) (_ [][]byte, balanced bool) {
	for {
		for len(line) > 0 && isSpace(line[0]) {
			line = line[1:]
		}
		if len(line) == 0 {
			return words, true
		}
		word, size, balanced := firstWord(line)
		if !balanced {
			return words, false
		}
		words, line = append(words, word), line[size:]
	}
}

// isSpace is isspace of C. Only the first four of it end a word without quotes, see firstWord.
func isSpace(c byte) bool { return endsWord(c) || c == '\v' || c == '\f' }

func endsWord(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// firstWord returns the word that a line begins with, and how many bytes of the line it is.
func firstWord(line []byte) (word []byte, size int, balanced bool) {
	word = []byte{}
	for size < len(line) && !endsWord(line[size]) {
		c := line[size]
		if size++; c != '"' && c != '\'' {
			word = append(word, c)
			continue
		}
		quoted, n := quotes(word, line[size:], c)
		if n < 0 {
			return nil, 0, false
		}
		size += n
		return quoted, size, size == len(line) || isSpace(line[size])
	}
	return word, size, true
}

// quotes appends what is within quotes, and returns how many bytes that is, the closing quote
// included; -1 if there is none.
func quotes(word, text []byte, quote byte) (_ []byte, size int) {
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch rest := text[i+1:]; {
		case c == quote:
			return word, i + 1
		case c != '\\' || len(rest) == 0 || quote == '\'' && rest[0] != '\'':
		case quote == '"' && rest[0] == 'x' && len(rest) > 2 && isHex(rest[1]) && isHex(rest[2]):
			n, _ := strconv.ParseUint(string(rest[1:3]), 16, 8)
			c = byte(n)
			i += 3
		default:
			if c = rest[0]; quote == '"' {
				c = unescaped(c)
			}
			i++
		}
		word = append(word, c)
	}
	return nil, -1
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// unescaped returns what a letter behind a backslash is.
func unescaped(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	}
	return c
}
