package resp

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/redcon"
)

// command is COMMAND with its subcommands COUNT, DOCS, INFO and LIST. Clients complete and
// check commands by it.
func (s *Server) command(c redcon.Conn, args [][]byte) {
	all := slices.Sorted(maps.Keys(commands))
	if len(args) == 0 {
		describe(c, all)
		return
	}
	switch sub := strings.ToUpper(clip(args[0])); sub {
	case "COUNT":
		c.WriteInt(len(all))
	case "DOCS":
		c.Context().(*session).mapping(c, 0)
	case "LIST":
		c.WriteArray(len(all))
		for _, name := range all {
			c.WriteBulkString(strings.ToLower(name))
		}
	case "INFO":
		if len(args) > 1 {
			all = nil
			for _, name := range args[1:] {
				all = append(all, strings.ToUpper(string(name)))
			}
		}
		describe(c, all)
	default:
		s.fail(c, fmt.Sprintf("ERR unknown subcommand '%s'; there are COUNT, DOCS, INFO, LIST", clip(args[0])))
	}
}

// describe writes name, number of arguments, flags and place of the key of each command.
func describe(c redcon.Conn, names []string) {
	c.WriteArray(len(names))
	for _, name := range names {
		known, found := commands[name]
		if !found {
			c.Context().(*session).null(c)
			continue
		}
		c.WriteArray(6)
		c.WriteBulkString(strings.ToLower(name))
		arity := known.least + 1
		if known.most != known.least {
			arity = -arity // or more
		}
		c.WriteInt(arity)
		flags := []string{"fast"}
		if known.key > 0 {
			flags = append(flags, "write")
		}
		c.WriteArray(len(flags))
		for _, f := range flags {
			c.WriteString(f)
		}
		c.WriteInt(known.key)
		c.WriteInt(known.key)
		c.WriteInt(min(known.key, 1))
	}
}
