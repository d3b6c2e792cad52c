package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// manCmd prints a page for man.
type manCmd struct{}

// Help is shown by hybridlimit man --help.
func (manCmd) Help() string {
	return "hybridlimit man > ~/.local/share/man/man1/hybridlimit.1"
}

// Run prints it.
func (manCmd) Run(p *program, k *kong.Kong) error {
	_, err := io.WriteString(p.out, manPage(k.Model.Node))
	return err
}

// roff returns a text as roff prints it as it is.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", `\[u2026]`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

// manPage returns the page: what the help says, and what all commands share.
func manPage(root *kong.Node) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	said := map[string]bool{}
	flags := func(list []*kong.Flag) {
		var again []string
		for _, f := range list {
			if text := fmt.Sprintf(".TP\n.B %s\n%s", roff(f.String()), roff(helpOf(f.Value))); !said[text] {
				said[text] = true
				line("%s", text)
			} else {
				again = append(again, "--"+f.Name)
			}
		}
		if len(again) > 0 {
			line(".PP\nAs above: %s.", roff(strings.Join(again, ", ")))
		}
	}
	line(".TH HYBRIDLIMIT 1 \"\" \"hybridlimit %s\"\n.nh", roff(thisVersion().Version))
	line(".SH NAME\nhybridlimit \\- looks at rate limits in Redis, changes them, and serves them")
	line(".SH SYNOPSIS\n.B hybridlimit\n.I COMMAND\n[flags]")
	line(".SH DESCRIPTION\n%s", roff(root.Help))
	line(".SH FLAGS OF ALL COMMANDS")
	flags(root.Flags)
	line(".SH COMMANDS")
	for _, n := range root.Children {
		line(".SS %s\n%s", roff(n.Summary()), roff(n.Help))
		if n.Detail != "" {
			line(".PP\n%s", roff(n.Detail))
		}
		for _, arg := range n.Positional {
			line(".TP\n.I %s\n%s", roff(arg.Summary()), roff(helpOf(arg)))
		}
		flags(n.Flags)
	}
	line(".SH ENVIRONMENT\nVariables that set a flag stand behind it. A flag in the arguments comes before its variable, and one that is empty is not set.")
	line(".SH EXIT STATUS\n0 fine, 1 something was found, 2 usage, 3 Redis, 4 anything else.")
	return b.String()
}
