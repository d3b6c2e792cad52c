package resp

import (
	"fmt"
	"strings"
	"testing"
)

// parseAll parses pieces that arrive one after another, and returns all commands.
func parseAll(pieces ...string) (commands []string, err error) {
	in := parser{most: maxCommand}
	for _, piece := range pieces {
		for len(piece) > 0 {
			n := copy(in.room(), piece)
			in.received(n)
			piece = piece[n:]
			for {
				args, err := in.next()
				if err != nil {
					return commands, err
				}
				if args == nil {
					break
				}
				commands = append(commands, fmt.Sprintf("%q", args))
			}
		}
	}
	return commands, nil
}

func TestCommandsAreFoundInWhateverPieces(t *testing.T) {
	ping := encode("PING")
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{ping, `["PING"]`},
		{ping + ping, `["PING"] ["PING"]`},
		{ping + "*1\r\n$4\r\nPI", `["PING"]`},
		{"PING\r\n", `["PING"]`},
		{"PING\nPING\r\n*", `["PING"] ["PING"]`},
		{"\r\n\n \r\n" + ping, `["PING"]`},
		{"*0\r\n*-1\r\n*-20\r\n" + ping + "*0\r\n", `["PING"]`},
		{encode("ECHO", ping), `["ECHO" "*1\r\n$4\r\nPING\r\n"]`},
		{encode("ECHO", "") + encode(""), `["ECHO" ""] [""]`},
		{"*1\rx$4\rxPINGxx" + ping, `["PING"] ["PING"]`}, // Redis does not look at them
		{"\techo\t \"a b\\x41\\n\\\"\" 'it\\'s \\n' a\"b c\"  \r\n", `["echo" "a bA\n\"" "it's \\n" "ab c"]`},
		{"a\vb \v\f c\r\n", `["a\vb" "c"]`},
		{"''\n\"\"\n", `[""] [""]`},
	} {
		for cut := range len(c.text) + 1 {
			got, err := parseAll(c.text[:cut], c.text[cut:])
			if err != nil || strings.Join(got, " ") != c.want {
				t.Errorf("%q, %q: %v, %v, want %v", c.text[:cut], c.text[cut:], got, err, c.want)
			}
		}
	}
}

func TestWhatIsTooLargeOrWrongIsRefused(t *testing.T) {
	big := strings.Repeat("x", maxCommand)
	for _, c := range []struct{ text, want string }{
		{fmt.Sprintf("*%d\r\n", maxArgs+1), "at most 128"},
		{fmt.Sprintf("*1\r\n$%d\r\n", maxCommand+1), "at most 65536"},
		{strings.Repeat("x ", maxArgs+1) + "\n", "more than 128 words"},
		{"*\r\n", "multibulk"}, {"*1\n\r\n", "multibulk"}, {"*01\r\n", "multibulk"}, {"*+1\r\n", "multibulk"}, {"*1x\r\n", "multibulk"},
		{"*-0\r\n", "multibulk"}, {"*- 1\r\n", "multibulk"}, {"*99999999999999999999\r\n", "multibulk"},
		{"*1\r\n$-1\r\n", "invalid bulk"}, {"*1\r\n$\r\n", "invalid bulk"}, {"*1\r\n\r\n\r\n", "expected '$'"}, {"*1\r\nPING\r\n", "expected '$', got 'P'"},
		{"a 'b\n", "unbalanced"}, {"a \"b\n", "unbalanced"}, {"'a'b\n", "unbalanced"}, {"\"\\x4\n", "unbalanced"}, {"\"\\\n", "unbalanced"},
		{big + "x", "more than 65536 bytes"},
		{"\x00\nPING\r\n" + big, "more than 65536 bytes"}, // Redis finds no end of line either
		{encode("ECHO", big[:maxCommand-20], big[:100]), "more than 65536 bytes"},
	} {
		for _, pieces := range [][]string{{c.text}, strings.SplitAfter(c.text, "\r")} {
			if got, err := parseAll(pieces...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%.40q…: %v, %v, want %q", c.text, got, err, c.want)
			}
		}
	}
}
