package screen

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWait(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", -1: "0s", 1: "1ms", time.Millisecond: "1ms", 999 * time.Millisecond: "999ms", time.Second: "1000ms", time.Second + 1: "1.1s",
		9900 * time.Millisecond: "9.9s", 10 * time.Second: "10.0s", 10*time.Second + 1: "11s", 59*time.Second + 1: "1m", time.Minute: "1m", 90 * time.Second: "1m30s",
		time.Hour: "1h", time.Hour + 1: "1h1m", 25 * time.Hour: "25h", 48 * time.Hour: "48h", 48*time.Hour + 1: "2d1h", 72 * time.Hour: "3d", 490 * time.Hour: "20d10h", 500 * time.Hour: "20d20h",
		100*day - 1: "100d", 100*day + 1: "101d", arith.MaxWindow: "36500d", limit.Never: "never",
	} {
		if got := Wait(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

func TestClean(t *testing.T) {
	for text, want := range map[string]string{"plain": "plain", `say "no"`: `say "no"`, "\x1b[31m": `\x1b[31m`, "a\nb": `a\nb`, "\xff": `\xff`, "日本": "日本", "\u202e": `\u202e`, "": ""} {
		if got := Clean(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// JSON has no character that a terminal takes for a command, and means the same.
func TestJSONIsClean(t *testing.T) {
	want := map[string]string{"key": "\x1b[31m\u009b31m\u202e\x7f\U000e0001日本 \"<é>\"\n"}
	for name, print := range map[string]func(*Screen, any) error{"object": (*Screen).Object, "record": (*Screen).Record} {
		var out bytes.Buffer
		if err := print(New(&out, nil), want); err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsFunc(out.Bytes(), unseen) || !strings.Contains(out.String(), `[31m\u009b31m\u202e\u007f\udb40\udc01日本 \"<é>\"\n"`) {
			t.Errorf("%s: %q", name, out.String())
		}
		var got map[string]string
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// A table is never wider than the screen while there is a column that gives way, and shows
// what it has cut.
func TestTableFits(t *testing.T) {
	for _, text := range []string{"short", strings.Repeat("long ", 50), strings.Repeat("長", 100)} {
		var out bytes.Buffer
		s := New(&out, nil)
		table := &Table{Columns: []Column{{Title: "KEY", Least: 12}, {Title: "RULE", Least: 8}, {Title: "USED", Right: true}}}
		table.Add(text, text, "1,000,000")
		table.Add("x", "y", "1")
		if err := s.Table(table); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		for _, line := range lines {
			if n := ansi.StringWidth(line); n > Width || n != ansi.StringWidth(lines[0]) {
				t.Errorf("%d columns: %q", n, line)
			}
		}
		if strings.Contains(out.String(), "…") != (len(text) > 10) {
			t.Errorf("%s", out.String())
		}
	}
}

// Colours are for terminals, and not for those who want none.
func TestColours(t *testing.T) {
	for name, c := range map[string]struct {
		environ []string
		want    bool
	}{
		"a pipe":       {[]string{"TERM=xterm-256color"}, false},
		"forced":       {[]string{"TERM=xterm-256color", "CLICOLOR_FORCE=1"}, true},
		"NO_COLOR":     {[]string{"TERM=xterm-256color", "CLICOLOR_FORCE=1", "NO_COLOR=1"}, false},
		"a dumb one":   {[]string{"TERM=dumb"}, false},
		"no variables": {nil, false},
	} {
		var out bytes.Buffer
		s := New(&out, c.environ)
		table := &Table{Columns: []Column{{Title: "A"}, {Title: "B"}}, Rows: [][]Cell{{{"x", Bad}, {"y", Good}}}}
		if err := s.Table(table); err != nil {
			t.Fatal(err)
		}
		if err := s.Line(Warn, 0, "careful"); err != nil {
			t.Fatal(err)
		}
		coloured := strings.Contains(out.String(), "\x1b[3") || strings.Contains(out.String(), ";3")
		if coloured != c.want || ansi.Strip(out.String()) != "A  B\nx  y\ncareful\n" {
			t.Errorf("%s: %q", name, out.String())
		}
	}
}
