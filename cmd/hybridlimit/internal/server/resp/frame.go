package resp

import "fmt"

// Bounds of what a client sends. The longest command that makes sense has six arguments and
// some hundred bytes.
const (
	maxArgs    = 128
	maxCommand = 64 << 10 // bytes of a command, with its lengths
	maxInline  = 4 << 10  // bytes of a command that is typed into telnet
	maxDigits  = 9        // of a length; so many fit an int everywhere
)

// where says which part of a command the next byte belongs to.
type where uint8

const (
	atStart  where = iota // of a command
	inInline              // a line of words
	inCount               // the number of arguments, after a *
	atBulk                // the $ of an argument
	inSize                // the length of an argument
	inBody                // an argument and the end of line behind it
)

// frame finds where commands end, and refuses those that are too large. It is what stands
// between clients and redcon, which believes each length that it is told: it waits for an
// argument of any size, and a length close to the largest integer ends the program. The zero
// frame is before the first command.
type frame struct {
	at     where
	args   int // that are still to come
	size   int // of the command so far
	number int // that is being read
	digits int
	ended  bool // the number has had its carriage return
	body   int  // bytes of the argument that are still to come
}

// scan reads on. It returns how many bytes of b belong to complete commands, counted from the
// beginning of b, or -1 if none ends in b. With an error, commands before that number are
// fine, and what follows must not be read.
func (f *frame) scan(b []byte) (complete int, err error) {
	complete = -1
	for i := 0; i < len(b); {
		step := 1
		if f.at == inBody {
			step = min(f.body, len(b)-i)
		}
		if f.size += step; f.size > maxCommand {
			return complete, fmt.Errorf("a command of more than %d bytes", maxCommand)
		}
		done, err := f.next(b[i], step)
		if err != nil {
			return complete, err
		}
		if i += step; done {
			complete, f.size = i, 0
		}
	}
	return complete, nil
}

// next takes one byte, or step bytes of an argument, and tells whether a command has ended.
func (f *frame) next(c byte, step int) (done bool, err error) {
	switch f.at {
	case atStart:
		f.at = inInline
		if c == '*' {
			f.at = inCount
			f.begin()
			return false, nil
		}
		fallthrough
	case inInline:
		if c == '\n' {
			f.at = atStart
			return true, nil
		}
		if f.size > maxInline {
			return false, fmt.Errorf("a line of more than %d bytes", maxInline)
		}
	case inCount:
		ended, err := f.digit(c)
		if err != nil || !ended {
			return false, err
		}
		if f.number < 1 || f.number > maxArgs {
			return false, fmt.Errorf("invalid multibulk length: 1 to %d arguments are allowed", maxArgs)
		}
		f.args, f.at = f.number, atBulk
	case atBulk:
		if c != '$' {
			return false, fmt.Errorf("expected '$', got %q", c)
		}
		f.at = inSize
		f.begin()
	case inSize:
		ended, err := f.digit(c)
		if err != nil || !ended {
			return false, err
		}
		if f.number > maxCommand {
			return false, fmt.Errorf("invalid bulk length: at most %d bytes are allowed", maxCommand)
		}
		f.body, f.at = f.number+len("\r\n"), inBody
	case inBody:
		if f.body -= step; f.body > 0 {
			return false, nil
		}
		if f.args--; f.args > 0 {
			f.at = atBulk
			return false, nil
		}
		f.at = atStart
		return true, nil
	}
	return false, nil
}

func (f *frame) begin() { f.number, f.digits, f.ended = 0, 0, false }

// digit takes one byte of a number and tells whether the line of it has ended.
func (f *frame) digit(c byte) (ended bool, err error) {
	switch {
	case f.ended && c == '\n' && f.digits > 0:
		return true, nil
	case !f.ended && c == '\r':
		f.ended = true
		return false, nil
	case f.ended || c < '0' || c > '9' || f.digits == maxDigits:
		return false, fmt.Errorf("invalid length: 1 to %d digits and an end of line are expected", maxDigits)
	}
	f.number, f.digits = 10*f.number+int(c-'0'), f.digits+1
	return false, nil
}
