package resp

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hybridlimit/hybridlimit/internal/escape"
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
	key         int            // which argument is the key, for COMMAND INFO; 0: none
	now         bool           // is not queued after MULTI
	subs        map[string]int // the words that the first argument may be, and how many then follow; nil: any
	run         func(s *Server, c *conn, args [][]byte)
}

// commands are all that there are, by their names in upper case. It is filled by init because
// COMMAND lists it.
var commands map[string]command

func init() {
	commands = map[string]command{
		"CL.THROTTLE": {least: 4, most: 5, key: 1, run: (*Server).throttle},
		"HL.TAKE":     {least: 2, most: 3, key: 2, run: (*Server).take},
		"HL.CHARGE":   {least: 3, most: 3, key: 2, run: (*Server).charge},
		"HL.PEEK":     {least: 2, most: 2, key: 2, run: (*Server).peek},

		"AUTH":    {least: 1, most: maxArgs, open: true, run: (*Server).auth},
		"HELLO":   {least: 0, most: maxArgs, open: true, run: (*Server).hello},
		"QUIT":    {least: 0, most: maxArgs, open: true, now: true, run: (*Server).quit},
		"RESET":   {least: 0, most: 0, open: true, now: true, run: (*Server).reset},
		"MULTI":   {least: 0, most: 0, now: true, run: (*Server).multi},
		"EXEC":    {least: 0, most: 0, now: true, run: (*Server).exec},
		"DISCARD": {least: 0, most: 0, now: true, run: (*Server).discard},
		"WATCH":   {least: 1, most: maxArgs, now: true, run: (*Server).watch},
		"UNWATCH": {least: 0, most: 0, run: (*Server).unwatch},
		"PING":    {least: 0, most: maxArgs, run: (*Server).ping},
		"ECHO":    {least: 1, most: 1, run: (*Server).echo},
		"SELECT":  {least: 1, most: 1, run: (*Server).selectDB},
		"CLIENT":  {least: 1, most: maxArgs, subs: map[string]int{"SETNAME": 1, "GETNAME": 0, "SETINFO": 2, "NO-EVICT": 1, "NO-TOUCH": 1, "TRACKING": anyArgs, "ID": 0}, run: (*Server).client},
		"COMMAND": {least: 0, most: maxArgs, subs: map[string]int{"COUNT": 0, "DOCS": anyArgs, "INFO": anyArgs, "LIST": anyArgs}, run: (*Server).command},
		"INFO":    {least: 0, most: maxArgs, run: (*Server).info},
	}
}

// serve answers one command. For a connection it is called for one command at a time.
func (s *Server) serve(c *conn, args [][]byte) {
	name := args[0]
	defer func() {
		if r := recover(); r != nil {
			s.count.panics.Add(1)
			s.o.Logger.Error("resp: a command has failed", "command", clip(name), "panic", fmt.Sprint(r))
			s.fail(c, "ERR the server failed to answer this command")
		}
	}()
	upper := string(bytes.ToUpper(name))
	known := commands[upper]
	problem := s.objection(c, known, args)
	if problem == "" && c.tx.open && !known.now {
		if problem = c.tx.add(args); problem == "" {
			c.simple("QUEUED") // it counts when it is run
			return
		}
	}
	s.count.commands.Add(1)
	switch {
	case isHTTP(name):
		// A browser that was tricked into sending commands begins like this.
		s.fail(c, "ERR this is not an HTTP server")
		c.over = true
	case problem != "" && upper == "EXEC":
		c.tx = transaction{}
		s.fail(c, "EXECABORT Transaction discarded because of: "+problem)
	case problem != "":
		c.tx.fail()
		s.fail(c, problem)
	default:
		known.run(s, c, args[1:])
	}
}

// objection returns why a command cannot be run or queued, empty if it can.
func (s *Server) objection(c *conn, known command, args [][]byte) string {
	switch n := len(args) - 1; {
	case known.run == nil:
		return fmt.Sprintf("ERR unknown command '%s'; there are %s", clip(args[0]), names())
	case n < known.least || n > known.most:
		return fmt.Sprintf("ERR wrong number of arguments for '%s' command", strings.ToLower(clip(args[0])))
	case n > 0 && known.subs != nil:
		if problem := known.subObjection(args); problem != "" {
			return problem
		}
	}
	if s.o.Password != "" && !c.known && !known.open {
		return "NOAUTH Authentication required."
	}
	return ""
}

// anyArgs is in the place of a number of arguments.
const anyArgs = -1

// subObjection is objection of what follows the name of a command that has subcommands.
func (known command) subObjection(args [][]byte) string {
	want, found := known.subs[strings.ToUpper(clip(args[1]))]
	switch {
	case !found:
		return fmt.Sprintf("ERR unknown subcommand '%s'; there are %s", clip(args[1]), strings.Join(slices.Sorted(maps.Keys(known.subs)), ", "))
	case want != anyArgs && want != len(args)-2:
		return fmt.Sprintf("ERR wrong number of arguments for '%s|%s' command", strings.ToLower(clip(args[0])), strings.ToLower(clip(args[1])))
	}
	return ""
}

func isHTTP(name []byte) bool {
	return bytes.EqualFold(name, []byte("POST")) || bytes.EqualFold(name, []byte("HOST:"))
}

// fail answers with an error.
func (s *Server) fail(c *conn, text string) {
	s.count.errors.Add(1)
	c.problem(text)
}

// names lists the commands.
func names() string { return strings.Join(slices.Sorted(maps.Keys(commands)), ", ") }

// clip shortens what a client has sent, for error texts. What cannot be printed is escaped.
func clip(b []byte) string {
	const most = 64
	return escape.Plain(string(b[:min(len(b), most+1)]), most)
}
