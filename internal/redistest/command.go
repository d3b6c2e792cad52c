package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// commandTimeout bounds one command, which a frozen server does not answer.
const commandTimeout = 5 * time.Second

// Do sends the server one command over a connection of its own and returns the
// reply: a string, an int64, nil, or a []any of these. An error that the
// server reports is one here, with its text.
func (s *Server) Do(words ...string) (any, error) {
	conn, err := net.DialTimeout("tcp", s.Addr(), commandTimeout)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	defer conn.Close()
	stop := time.AfterFunc(commandTimeout, func() { conn.Close() })
	defer stop.Stop()
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	var reply any
	if _, err = io.WriteString(conn, b.String()); err == nil {
		reply, err = parseReply(bufio.NewReader(conn), 0)
	}
	if err != nil {
		return nil, fmt.Errorf("redistest: %.40s: %w", strings.Join(words, " "), err)
	}
	return reply, nil
}

// text is Do for a reply that is one string.
func (s *Server) text(words ...string) (string, error) {
	reply, err := s.Do(words...)
	if err != nil {
		return "", err
	}
	t, ok := reply.(string)
	if !ok {
		return "", fmt.Errorf("redistest: %.40s: %w", strings.Join(words, " "), errProtocol)
	}
	return t, nil
}

// Info returns one section of the server's INFO, by field.
func (s *Server) Info(section string) (map[string]string, error) {
	t, err := s.text("INFO", section)
	return fields(t), err
}

// fields takes lines of "name:value" apart.
func fields(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}

// Role returns what the server takes itself for, "master" or "slave", or ""
// if it does not answer.
func (s *Server) Role() string {
	reply, err := s.Do("ROLE")
	if list, ok := reply.([]any); err == nil && ok && len(list) > 0 {
		role, _ := list[0].(string)
		return role
	}
	return ""
}

// parseReply reads one reply of RESP2.
func parseReply(rd *bufio.Reader, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errProtocol
	}
	var raw []byte
	line, err := readLine(rd, &raw)
	if err != nil {
		return nil, err
	}
	switch line[0] {
	case '+':
		return string(line[1:]), nil
	case '-':
		return nil, errors.New(string(line[1:]))
	case ':':
		return strconv.ParseInt(string(line[1:]), 10, 64)
	case '$':
		n, err := length(line, maxBulk)
		if err != nil || n < 0 {
			return nil, err
		}
		b, err := readBulk(rd, &raw, n)
		return string(b[:n]), err
	case '*':
		n, err := length(line, maxItems)
		if err != nil || n < 0 {
			return nil, err
		}
		list := make([]any, n)
		for i := range list {
			if list[i], err = parseReply(rd, depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return nil, errProtocol
}
