package resp

import (
	"maps"
	"slices"
	"strings"
)

// command is COMMAND with its subcommands COUNT, DOCS, INFO and LIST. Clients complete and
// check commands by it.
func (s *Server) command(c *conn, args [][]byte) {
	all := slices.Sorted(maps.Keys(commands))
	if len(args) == 0 {
		describe(c, all)
		return
	}
	switch sub := strings.ToUpper(clip(args[0])); sub {
	case "COUNT":
		c.integer(int64(len(all)))
	case "DOCS":
		c.mapping(0)
	case "LIST":
		c.array(len(all))
		for _, name := range all {
			c.bulk(strings.ToLower(name))
		}
	case "INFO":
		if len(args) > 1 {
			all = nil
			for _, name := range args[1:] {
				all = append(all, strings.ToUpper(string(name)))
			}
		}
		describe(c, all)
	}
}

// describe writes name, number of arguments, flags and place of the key of each command.
func describe(c *conn, names []string) {
	c.array(len(names))
	for _, name := range names {
		known, found := commands[name]
		if !found {
			c.null()
			continue
		}
		c.array(6)
		c.bulk(strings.ToLower(name))
		arity := known.least + 1
		if known.most != known.least {
			arity = -arity // or more
		}
		c.integer(int64(arity))
		flags := []string{"fast"}
		if known.key > 0 {
			flags = append(flags, "write")
		}
		c.array(len(flags))
		for _, f := range flags {
			c.simple(f)
		}
		c.integer(int64(known.key))
		c.integer(int64(known.key))
		c.integer(int64(min(known.key, 1)))
	}
}
