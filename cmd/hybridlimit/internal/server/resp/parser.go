package resp

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// Bounds of what a client sends. The longest command that makes sense has six arguments and
// some hundred bytes.
const (
	maxArgs    = 128
	maxCommand = 64 << 10 // bytes of a command, with its lengths
)

// Bounds of Redis for a client that has not sent the password yet.
const (
	maxArgsUnknown = 10
	maxBulkUnknown = 16 << 10
)

// parser takes commands out of the bytes that a client sends. It accepts, ignores and refuses
// what Redis 7 does: the tests compare it with a redis-server. Only its bounds are lower.
type parser struct {
	most    int  // bytes of a command
	unknown bool // the client must send the password first

	buf   []byte // what has been received
	start int    // of the first command in buf that was not returned

	// Of this command.
	pos   int   // bytes that are parsed
	left  int   // arguments that are still to come
	size  int   // of the next argument, if sized
	sized bool  // the length of the next argument is known
	marks []int // begin and end of each argument, from the start of the command

	args [][]byte // what next has returned
}

// next returns the next command, nil if it is not complete. What it returns is valid until
// more is received. After an error the parser must not be used any more.
func (p *parser) next() ([][]byte, error) {
	for p.start < len(p.buf) {
		parse := p.line
		if p.buf[p.start] == '*' {
			parse = p.array
		}
		done, err := parse()
		size := p.pos
		if !done {
			size = len(p.buf) - p.start
		}
		switch {
		case err != nil:
			return nil, err
		case size > p.most:
			return nil, fmt.Errorf("a command of more than %d bytes", p.most)
		case !done:
			return nil, nil
		}
		p.start += p.pos
		p.pos = 0
		if len(p.args) > 0 { // else it was an empty line or an empty array
			return p.args, nil
		}
	}
	return nil, nil
}

// room returns where to put what is received. What next has returned is not valid any more.
func (p *parser) room() []byte {
	if p.start > 0 {
		p.buf = p.buf[:copy(p.buf, p.buf[p.start:])]
		p.start = 0
	}
	if len(p.buf) == cap(p.buf) {
		grown := make([]byte, len(p.buf), max(firstBuffer, 2*cap(p.buf)))
		copy(grown, p.buf)
		p.buf = grown
	}
	return p.buf[len(p.buf):cap(p.buf)]
}

// received says how many bytes were put into the room.
func (p *parser) received(n int) { p.buf = p.buf[:len(p.buf)+n] }

// array parses a command as libraries send it, as far as it has been received.
func (p *parser) array() (done bool, err error) {
	p.args = p.args[:0]
	if p.pos == 0 {
		n, found, valid := p.length()
		switch {
		case !found:
			return false, nil
		case !valid:
			return false, errors.New("invalid multibulk length")
		case n > maxArgsUnknown && p.unknown:
			return false, errors.New("unauthenticated multibulk length")
		case n > maxArgs:
			return false, fmt.Errorf("invalid multibulk length: at most %d arguments are allowed", maxArgs)
		}
		p.left, p.sized, p.marks = int(max(n, 0)), false, p.marks[:0]
	}
	for ; p.left > 0; p.left-- {
		if ready, err := p.argument(); !ready {
			return false, err
		}
	}
	command := p.buf[p.start:]
	for i := 0; i < len(p.marks); i += 2 {
		p.args = append(p.args, command[p.marks[i]:p.marks[i+1]])
	}
	p.marks = p.marks[:0]
	return true, nil
}

// argument parses the next argument of an array. Redis does not look at the two bytes behind it.
func (p *parser) argument() (ready bool, err error) {
	if !p.sized {
		at := p.start + p.pos
		n, found, valid := p.length()
		switch {
		case !found:
			return false, nil
		case p.buf[at] != '$':
			return false, fmt.Errorf("expected '$', got %q", p.buf[at])
		case !valid || n < 0:
			return false, errors.New("invalid bulk length")
		case n > maxBulkUnknown && p.unknown:
			return false, errors.New("unauthenticated bulk length")
		case n > maxCommand:
			return false, fmt.Errorf("invalid bulk length: at most %d bytes are allowed", maxCommand)
		}
		p.size, p.sized = int(n), true
	}
	end := p.pos + p.size
	if p.start+end+len("\r\n") > len(p.buf) {
		return false, nil
	}
	p.marks = append(p.marks, p.pos, end)
	p.pos, p.sized = end+len("\r\n"), false
	return true, nil
}

// length parses a line that is a letter and a number. Redis looks for the carriage return and
// passes over one byte behind it, whatever that is.
func (p *parser) length() (n int64, found, valid bool) {
	b := p.buf[p.start+p.pos:]
	end := until(b, '\r')
	if end < 0 || end+len("\r\n") > len(b) {
		return 0, false, false
	}
	p.pos += end + len("\r\n")
	n, valid = integer(b[min(1, end):end])
	return n, true, valid
}

// line parses a command that is typed, if its line has ended.
func (p *parser) line() (done bool, err error) {
	b := p.buf[p.start:]
	end := until(b, '\n')
	if end < 0 {
		return false, nil
	}
	p.pos = end + 1
	words, balanced := split(p.args[:0], bytes.TrimSuffix(b[:end], []byte("\r")))
	if !balanced {
		return false, errors.New("unbalanced quotes in request")
	}
	if len(words) > maxArgs {
		return false, fmt.Errorf("a line of more than %d words", maxArgs)
	}
	p.args = words
	return true, nil
}

// until returns where the first c is, -1 if there is none. As in Redis, nothing is found
// behind a zero byte: there its strings end.
func until(b []byte, c byte) int {
	i := bytes.IndexByte(b, c)
	if i >= 0 && bytes.IndexByte(b[:i], 0) >= 0 {
		return -1
	}
	return i
}

// integer reads a number as Redis does: without a plus sign, spaces or leading zeros.
func integer(b []byte) (n int64, valid bool) {
	digits := bytes.TrimPrefix(b, []byte("-"))
	if string(b) != "0" && (len(digits) == 0 || digits[0] < '1' || digits[0] > '9') {
		return 0, false
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil
}
