package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
)

// maxBulk and maxItems bound one element of the protocol: the limits of Redis.
const (
	maxBulk  = 512 << 20
	maxItems = 1 << 20
	maxDepth = 32
)

var errProtocol = errors.New("redistest: not the Redis protocol")

// isSetup tells whether a command belongs to the setting up of a connection.
func isSetup(name string) bool {
	switch strings.ToUpper(name) {
	case "HELLO", "AUTH", "CLIENT", "SELECT", "PING", "COMMAND", "CLUSTER", "READONLY":
		return true
	}
	return false
}

// readLine appends one line to raw and returns it without its end.
func readLine(rd *bufio.Reader, raw *[]byte) ([]byte, error) {
	line, err := rd.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	*raw = append(*raw, line...)
	line = bytes.TrimRight(line, "\r\n")
	if len(line) == 0 {
		return nil, errProtocol
	}
	return line, nil
}

// readBulk appends n bytes and the end of line to raw and returns the bytes.
func readBulk(rd *bufio.Reader, raw *[]byte, n int) ([]byte, error) {
	start := len(*raw)
	*raw = append(*raw, make([]byte, n+2)...)
	_, err := io.ReadFull(rd, (*raw)[start:])
	return (*raw)[start : start+n], err
}

// length parses the number of a header line; -1 is a null.
func length(line []byte, most int) (int, error) {
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n < -1 || n > most {
		return 0, errProtocol
	}
	return n, nil
}

// readCommand appends one command to raw and returns its name.
func readCommand(rd *bufio.Reader, raw *[]byte) (name string, err error) {
	line, err := readLine(rd, raw)
	if err != nil {
		return "", err
	}
	if line[0] != '*' {
		return "", errProtocol
	}
	items, err := length(line, maxItems)
	if err != nil {
		return "", err
	}
	for i := range items {
		if line, err = readLine(rd, raw); err != nil {
			return "", err
		}
		n, err := length(line, maxBulk)
		if err != nil || n < 0 || line[0] != '$' {
			return "", errProtocol
		}
		word, err := readBulk(rd, raw, n)
		if err != nil {
			return "", err
		}
		if i == 0 {
			name = string(word)
		}
	}
	return name, nil
}

// readReplies returns the next n replies as they came. Messages that the
// server pushes in between are passed along and not counted.
func readReplies(rd *bufio.Reader, n int) ([]byte, error) {
	var raw []byte
	for n > 0 {
		kind, err := rd.Peek(1)
		if err != nil {
			return nil, err
		}
		pushed := kind[0] == '>'
		if err := readReply(rd, &raw, 0); err != nil {
			return nil, err
		}
		if !pushed {
			n--
		}
	}
	return raw, nil
}

// readReply appends one reply of RESP2 or RESP3 to raw.
func readReply(rd *bufio.Reader, raw *[]byte, depth int) error {
	if depth > maxDepth {
		return errProtocol
	}
	line, err := readLine(rd, raw)
	if err != nil {
		return err
	}
	children := 0
	switch line[0] {
	case '+', '-', ':', '_', ',', '#', '(':
		return nil
	case '$', '=', '!':
		n, err := length(line, maxBulk)
		if err != nil || n < 0 {
			return err
		}
		_, err = readBulk(rd, raw, n)
		return err
	case '*', '~', '>':
		children, err = length(line, maxItems)
	case '%':
		children, err = length(line, maxItems)
		children *= 2
	case '|': // attributes: pairs, and the reply that they describe
		children, err = length(line, maxItems)
		children = 2*children + 1
	default:
		return errProtocol
	}
	for i := 0; err == nil && i < children; i++ {
		err = readReply(rd, raw, depth+1)
	}
	return err
}
