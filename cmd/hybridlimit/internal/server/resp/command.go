package resp

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/redcon"
)

// session is what a server knows of a connection.
type session struct {
	known    bool // has sent the password, or there is none
	protocol int  // of Redis: 2 or 3
	name     string
}

// command is one that clients may send.
type command struct {
	least, most int // arguments, without the name
	open        bool
	key         int // which argument is the key, for COMMAND INFO; 0: none
	run         func(s *Server, c redcon.Conn, args [][]byte)
}

// commands are all that there are, by their names in upper case. It is filled by init because
// COMMAND lists it.
var commands map[string]command

func init() {
	commands = map[string]command{
		"CL.THROTTLE": {least: 4, most: 5, key: 1, run: (*Server).throttle},
		"HL.TAKE":     {least: 2, most: 3, key: 2, run: (*Server).take},
		"HL.PEEK":     {least: 2, most: 2, key: 2, run: (*Server).peek},

		"AUTH":    {least: 1, most: 2, open: true, run: (*Server).auth},
		"HELLO":   {least: 0, most: maxArgs, open: true, run: (*Server).hello},
		"QUIT":    {least: 0, most: maxArgs, open: true, run: (*Server).quit},
		"RESET":   {least: 0, most: 0, open: true, run: (*Server).reset},
		"PING":    {least: 0, most: 1, run: (*Server).ping},
		"ECHO":    {least: 1, most: 1, run: (*Server).echo},
		"SELECT":  {least: 1, most: 1, run: (*Server).selectDB},
		"CLIENT":  {least: 1, most: maxArgs, run: (*Server).client},
		"COMMAND": {least: 0, most: maxArgs, run: (*Server).command},
		"INFO":    {least: 0, most: maxArgs, run: (*Server).info},
	}
}

// serve answers one command. It is called by redcon, for a connection one command at a time.
func (s *Server) serve(c redcon.Conn, cmd redcon.Command) {
	s.count.commands.Add(1)
	defer func() {
		if r := recover(); r != nil {
			s.count.panics.Add(1)
			s.o.Logger.Error("resp: a command has failed", "command", clip(cmd.Args[0]), "panic", fmt.Sprint(r))
			s.fail(c, "ERR the server failed to answer this command")
		}
	}()
	name := cmd.Args[0]
	known, found := commands[string(bytes.ToUpper(name))]
	args := cmd.Args[1:]
	switch session := c.Context().(*session); {
	case isHTTP(name):
		// A browser that was tricked into sending commands begins like this.
		s.fail(c, "ERR this is not an HTTP server")
		end(c)
	case !found:
		s.fail(c, fmt.Sprintf("ERR unknown command '%s'; there are %s", clip(name), names()))
	case s.o.Password != "" && !session.known && !known.open:
		s.fail(c, "NOAUTH Authentication required.")
	case len(args) < known.least || len(args) > known.most:
		s.fail(c, fmt.Sprintf("ERR wrong number of arguments for '%s' command", strings.ToLower(clip(name))))
	default:
		known.run(s, c, args)
	}
}

func isHTTP(name []byte) bool {
	return bytes.EqualFold(name, []byte("POST")) || bytes.EqualFold(name, []byte("HOST:"))
}

// end closes a connection after what was written to it. Commands that came behind are dropped.
func end(c redcon.Conn) {
	c.ReadPipeline()
	_ = c.Close()
}

// fail answers with an error.
func (s *Server) fail(c redcon.Conn, text string) {
	s.count.errors.Add(1)
	c.WriteError(text)
}

// names lists the commands.
func names() string { return strings.Join(slices.Sorted(maps.Keys(commands)), ", ") }

// clip shortens what a client has sent, for error texts. What cannot be printed is escaped.
func clip(b []byte) string {
	const most = 64
	cut := ""
	if len(b) > most {
		b, cut = b[:most], "…"
	}
	quoted := fmt.Sprintf("%q", b)
	return quoted[1:len(quoted)-1] + cut
}
