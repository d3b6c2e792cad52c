package resp

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strconv"
	"strings"
)

// What clients send when they connect. It changes nothing but the session.

// redisVersion is the version of Redis that clients are told: with it they use what is here.
const redisVersion = "7.0.0"

// auth is AUTH [user] password. There is one user.
func (s *Server) auth(c *conn, args [][]byte) {
	switch {
	case len(args) > 2:
		s.fail(c, "ERR syntax error")
	case s.o.Password == "" && len(args) == 1:
		s.fail(c, "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
	case s.login(&c.session, args):
		c.simple("OK")
	default:
		s.fail(c, wrongPassword)
	}
}

const wrongPassword = "WRONGPASS invalid username-password pair or user is disabled."

// login takes [user] password. Without a password of the server each is right, as for the
// user "default" of Redis. Who has been let in before stays so if this is wrong, as there.
func (s *Server) login(in *session, args [][]byte) bool {
	user, password := []byte("default"), args[len(args)-1]
	if len(args) == 2 {
		user = args[0]
	}
	sum := sha256.Sum256(password) // of equal length, so that the time says nothing
	right := s.o.Password == "" || subtle.ConstantTimeCompare(sum[:], s.password[:]) == 1
	if !right || string(user) != "default" {
		return false
	}
	in.known = true
	return true
}

// hello is HELLO [version [AUTH user password] [SETNAME name]].
func (s *Server) hello(c *conn, args [][]byte) {
	in := &c.session
	next := *in
	if len(args) > 0 {
		v, err := strconv.Atoi(string(args[0]))
		if err != nil {
			s.fail(c, "ERR Protocol version is not an integer or out of range")
			return
		}
		if v != 2 && v != 3 {
			s.fail(c, "NOPROTO unsupported protocol version")
			return
		}
		next.protocol, args = v, args[1:]
	}
	for len(args) > 0 {
		switch {
		case bytes.EqualFold(args[0], []byte("AUTH")) && len(args) > 2:
			if !s.login(&next, args[1:3]) {
				s.fail(c, wrongPassword)
				return
			}
			args = args[3:]
		case bytes.EqualFold(args[0], []byte("SETNAME")) && len(args) > 1 && !isName(args[1]):
			s.fail(c, badName)
			return
		case bytes.EqualFold(args[0], []byte("SETNAME")) && len(args) > 1:
			next.name, args = clip(args[1]), args[2:]
		default:
			s.fail(c, fmt.Sprintf("ERR Syntax error in HELLO option '%s'", clip(args[0])))
			return
		}
	}
	if s.o.Password != "" && !next.known {
		s.fail(c, "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
		return
	}
	*in = next
	c.mapping(7)
	for _, pair := range [][2]string{{"server", "redis"}, {"version", redisVersion}} {
		c.bulk(pair[0])
		c.bulk(pair[1])
	}
	c.bulk("proto")
	c.integer(int64(in.protocol))
	c.bulk("id")
	c.integer(1)
	for _, pair := range [][2]string{{"mode", "standalone"}, {"role", "master"}} {
		c.bulk(pair[0])
		c.bulk(pair[1])
	}
	c.bulk("modules")
	c.array(0)
}

// mapping begins a map of n pairs: an array of twice as many in version 2 of the protocol.
func (c *conn) mapping(n int) {
	if c.protocol == 3 {
		c.out = fmt.Appendf(c.out, "%%%d\r\n", n)
		return
	}
	c.array(2 * n)
}

// null writes that there is nothing.
func (c *conn) null() {
	if c.protocol == 3 {
		c.out = append(c.out, "_\r\n"...)
		return
	}
	c.out = append(c.out, "$-1\r\n"...)
}

func (s *Server) quit(c *conn, _ [][]byte) {
	c.simple("OK")
	c.over = true
}

func (s *Server) reset(c *conn, _ [][]byte) {
	c.session, c.tx = session{protocol: 2}, transaction{}
	c.simple("RESET")
}

func (s *Server) ping(c *conn, args [][]byte) {
	switch len(args) {
	case 0:
		c.simple("PONG")
	case 1:
		c.bulk(string(args[0]))
	default: // which Redis finds out when it runs it, too
		s.fail(c, "ERR wrong number of arguments for 'ping' command")
	}
}

func (s *Server) echo(c *conn, args [][]byte) { c.bulk(string(args[0])) }

// selectDB accepts database 0 alone: limits of others would be the same.
func (s *Server) selectDB(c *conn, args [][]byte) {
	if string(args[0]) != "0" {
		s.fail(c, "ERR DB index is out of range: there is only database 0")
		return
	}
	c.simple("OK")
}

const badName = "ERR Client names cannot contain spaces, newlines or special characters."

// isName reports whether a client may be called so.
func isName(name []byte) bool {
	return bytes.IndexFunc(name, func(r rune) bool { return r < '!' || r > '~' }) < 0
}

// client is CLIENT with those of its subcommands that libraries send.
func (s *Server) client(c *conn, args [][]byte) {
	in := &c.session
	switch sub := strings.ToUpper(clip(args[0])); sub {
	case "SETNAME":
		if !isName(args[1]) {
			s.fail(c, badName)
			return
		}
		in.name = clip(args[1])
		c.simple("OK")
	case "GETNAME":
		if in.name == "" {
			c.null()
			return
		}
		c.bulk(in.name)
	case "SETINFO", "NO-EVICT", "NO-TOUCH", "TRACKING":
		c.simple("OK") // nothing is kept that it could concern: rueidis wants TRACKING, and no key here changes
	case "ID":
		c.integer(1)
	}
}

// info is INFO: what clients look at to learn whether the server is ready.
func (s *Server) info(c *conn, _ [][]byte) {
	stats := s.Stats()
	c.bulk(fmt.Sprintf("# Server\r\nredis_version:%s\r\nredis_mode:standalone\r\nserver_name:hybridlimit\r\n"+
		"# Clients\r\nconnected_clients:%d\r\n# Persistence\r\nloading:0\r\n# Stats\r\ntotal_commands_processed:%d\r\n"+
		"# Replication\r\nrole:master\r\n", redisVersion, stats.Conns, stats.Commands))
}
