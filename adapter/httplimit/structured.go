package httplimit

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"
)

// listItem is a member of a list of structured fields (RFC 9651): a string or a token, and
// its parameters.
type listItem struct {
	name   string
	params map[string]any // int64, or string for a string; nil for another type
}

func (i listItem) integer(param string) (n int64, ok bool) {
	n, ok = i.params[param].(int64)
	return n, ok
}

func (i listItem) text(param string) (s string, ok bool) {
	s, ok = i.params[param].(string)
	return s, ok
}

// longestField bounds what is parsed of an upstream's fields.
const longestField = 8 << 10

// parseList parses a list whose members are strings or tokens, as strictly as RFC 9651,
// section 4.2 has it: one that is malformed anywhere is invalid. So is one with members of
// another type.
func parseList(text string) (items []listItem, ok bool) {
	p := &fieldParser{rest: strings.Trim(text, " ")}
	if len(text) > longestField {
		return nil, false
	}
	for p.rest != "" {
		item, ok := p.item()
		if !ok {
			return nil, false
		}
		items = append(items, item)
		p.skip(" \t")
		if p.rest == "" {
			return items, true
		}
		if !p.take(',') {
			return nil, false
		}
		if p.skip(" \t"); p.rest == "" {
			return nil, false // a comma at the end
		}
	}
	return items, true
}

// fieldParser has what is left to parse.
type fieldParser struct{ rest string }

func (p *fieldParser) skip(set string) { p.rest = strings.TrimLeft(p.rest, set) }

func (p *fieldParser) peek() byte {
	if p.rest == "" {
		return 0
	}
	return p.rest[0]
}

func (p *fieldParser) take(c byte) bool {
	if p.peek() != c || p.rest == "" {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// while takes bytes for as long as they are wanted.
func (p *fieldParser) while(want func(c byte) bool) string {
	n := 0
	for n < len(p.rest) && want(p.rest[n]) {
		n++
	}
	s := p.rest[:n]
	p.rest = p.rest[n:]
	return s
}

func (p *fieldParser) item() (item listItem, ok bool) {
	if p.peek() == '"' {
		item.name, ok = p.string()
	} else {
		item.name, ok = p.token()
	}
	for ok && p.take(';') {
		p.skip(" ")
		var key string
		var value any
		if key, ok = p.key(); ok {
			if p.take('=') {
				value, ok = p.bareItem()
			}
			if item.params == nil {
				item.params = map[string]any{}
			}
			item.params[key] = value // the last one counts
		}
	}
	return item, ok
}

func (p *fieldParser) key() (key string, ok bool) {
	if c := p.peek(); c != '*' && (c < 'a' || c > 'z') {
		return "", false
	}
	return p.while(func(c byte) bool {
		return 'a' <= c && c <= 'z' || isDigit(c) || strings.IndexByte("_-.*", c) >= 0
	}), true
}

func (p *fieldParser) bareItem() (value any, ok bool) {
	switch c := p.peek(); {
	case c == '-' || isDigit(c):
		return p.number()
	case c == '"':
		return p.string()
	case c == ':':
		return nil, p.bytes()
	case c == '?':
		return nil, p.boolean()
	case c == '@':
		p.take('@')
		date, ok := p.number()
		_, whole := date.(int64)
		return nil, ok && whole
	case c == '%':
		return nil, p.displayString()
	}
	_, ok = p.token()
	return nil, ok
}

// number returns an int64, or nil for a decimal.
func (p *fieldParser) number() (value any, ok bool) {
	sign := int64(1)
	if p.take('-') {
		sign = -1
	}
	whole := p.while(isDigit)
	if p.take('.') {
		fraction := p.while(isDigit)
		return nil, 1 <= len(whole) && len(whole) <= 12 && 1 <= len(fraction) && len(fraction) <= 3
	}
	if len(whole) > 15 {
		return nil, false
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	return sign * n, err == nil
}

func (p *fieldParser) string() (s string, ok bool) {
	p.take('"')
	var b strings.Builder
	for p.rest != "" {
		c := p.rest[0]
		p.rest = p.rest[1:]
		switch {
		case c == '"':
			return b.String(), true
		case c == '\\':
			if c = p.peek(); c != '"' && c != '\\' {
				return "", false
			}
			p.rest = p.rest[1:]
		case c < ' ' || c > '~':
			return "", false
		}
		b.WriteByte(c)
	}
	return "", false
}

func (p *fieldParser) token() (s string, ok bool) {
	if c := p.peek(); c != '*' && (!isAlnum(c) || isDigit(c)) {
		return "", false
	}
	return p.while(func(c byte) bool { return isTokenByte(c) || c == ':' || c == '/' }), true
}

func (p *fieldParser) bytes() bool {
	p.take(':')
	text, rest, closed := strings.Cut(p.rest, ":")
	p.rest = rest
	_, err := base64.StdEncoding.DecodeString(text)
	if err != nil { // padding may be missing
		_, err = base64.RawStdEncoding.DecodeString(text)
	}
	return closed && err == nil && !strings.ContainsAny(text, "\r\n")
}

func (p *fieldParser) boolean() bool {
	p.take('?')
	return p.take('0') || p.take('1')
}

// displayString is %"text", in which %xx stands for bytes of UTF-8.
func (p *fieldParser) displayString() bool {
	p.take('%')
	if !p.take('"') {
		return false
	}
	text, rest, closed := strings.Cut(p.rest, `"`)
	p.rest = rest
	var b []byte
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c < ' ' || c > '~' {
			return false
		}
		if c == '%' {
			if i+2 >= len(text) || !isLowerHex(text[i+1]) || !isLowerHex(text[i+2]) {
				return false
			}
			n, _ := strconv.ParseUint(text[i+1:i+3], 16, 8)
			c, i = byte(n), i+2
		}
		b = append(b, c)
	}
	return closed && utf8.Valid(b)
}

func isLowerHex(c byte) bool { return isDigit(c) || 'a' <= c && c <= 'f' }
