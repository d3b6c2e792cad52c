package resp

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/tidwall/redcon"
)

func TestFrameFindsWhereCommandsEnd(t *testing.T) {
	ping := encode("PING")
	for _, c := range []struct {
		text     string
		complete int
	}{
		{"", -1},
		{ping, len(ping)},
		{ping + ping, 2 * len(ping)},
		{ping + "*1\r\n$4\r\nPI", len(ping)},
		{ping[:len(ping)-1], -1},
		{"PING\r\n", 6},
		{"PING\nPING\r\n*", 11},
		{"\r\n", 2},
		{encode("ECHO", "*1\r\n$4\r\nPING\r\n"), len(encode("ECHO", "*1\r\n$4\r\nPING\r\n"))},
		{encode("ECHO", ""), len(encode("ECHO", ""))},
	} {
		for cut := range len(c.text) + 1 { // arrives in two pieces
			var f frame
			first, err := f.scan([]byte(c.text[:cut]))
			if err != nil {
				t.Fatalf("%q: %v", c.text[:cut], err)
			}
			second, err := f.scan([]byte(c.text[cut:]))
			if err != nil {
				t.Fatalf("%q, %q: %v", c.text[:cut], c.text[cut:], err)
			}
			complete := first
			if second >= 0 {
				complete = cut + second
			}
			if complete != c.complete {
				t.Errorf("%q, %q: complete up to %d, want %d", c.text[:cut], c.text[cut:], complete, c.complete)
			}
		}
	}
}

func TestFrameRefusesWhatIsTooLarge(t *testing.T) {
	big := strings.Repeat("x", maxCommand)
	for _, text := range []string{
		fmt.Sprintf("*%d\r\n", int64(math.MaxInt64)),       // redcon would count to it
		fmt.Sprintf("*1\r\n$%d\r\n", int64(math.MaxInt64)), // redcon would fail, and the program with it
		fmt.Sprintf("*1\r\n$%d\r\n", int64(math.MaxInt64-10)),
		fmt.Sprintf("*%d\r\n", maxArgs+1),
		fmt.Sprintf("*1\r\n$%d\r\n", maxCommand+1),
		"*0\r\n", "*-1\r\n", "*1\r\n$-1\r\n", "*\r\n", "*1\n", "*1\r\r\n", "*1x\r\n", "*1\r\n$\r\n", "*1\r\nPING\r\n", "*+1\r\n",
		"*1\r\n$4\r\nPING\r\n*x",
		big, // a line without an end
		encode("ECHO", big[:maxCommand-20], big[:100]),
	} {
		var f frame
		if _, err := f.scan([]byte(text)); err == nil {
			t.Errorf("%.40q…: no error", text)
		}
	}
}

// Whatever comes, redcon must find exactly those commands that the frame has let through, and
// nothing that it waits for.
func FuzzFrame(f *testing.F) {
	for _, s := range []string{encode("PING"), encode("CL.THROTTLE", "k", "1", "1", "1"), "PING\r\n", "ECHO \"a b\"\r\n", "*1\r\n$4\r\nPING\r\nPING\r\n", "*2\r\n$0\r\n\r\n$1\r\n\n\r\n", "\n\n", "a 'b"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var fr frame
		complete, _ := fr.scan(text)
		if complete < 0 {
			return
		}
		rd := redcon.NewReader(bytes.NewReader(text[:complete]))
		for {
			cmds, err := rd.ReadCommands()
			if err != nil {
				break // the end, or quotes that redcon does not like
			}
			for _, cmd := range cmds {
				if len(cmd.Args) == 0 || len(cmd.Args) > maxInline {
					t.Fatalf("a command of %d words in %q", len(cmd.Args), text)
				}
			}
		}
	})
}
