package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCmd prints what a shell needs to complete a command line of this program. It knows the
// commands, their flags, and the words that some of them take; all else is a file.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"${enum}."`
}

// Help is shown by hybridlimit completion --help.
func (completionCmd) Help() string {
	return "In ~/.bashrc or ~/.zshrc: source <(hybridlimit completion bash), or zsh. In ~/.config/fish/config.fish: hybridlimit completion fish | source."
}

// Run prints it.
func (c *completionCmd) Run(p *program, k *kong.Kong) error {
	var text string
	switch c.Shell {
	case "bash":
		text = bashCompletion(k.Model.Node)
	case "zsh": // which can run what is for bash
		text = zshForm + bashCompletion(k.Model.Node)
	case "fish":
		text = fishCompletion(k.Model.Node)
	}
	_, err := io.WriteString(p.out, text)
	return err
}

// flagsOf returns the flags of a command, those of all commands included.
func flagsOf(n *kong.Node) []*kong.Flag { return slices.Concat(n.AllFlags(true)...) }

// wordsOf returns what a command takes besides its flags, as far as it is known.
func wordsOf(n *kong.Node) (words []string) {
	for _, child := range n.Children {
		words = append(words, child.Name)
	}
	for _, arg := range n.Positional {
		if arg.Enum != "" {
			words = append(words, arg.EnumSlice()...)
		}
	}
	return words
}

// spellings returns a flag as it is typed.
func spellings(f *kong.Flag) []string {
	if f.Short == 0 {
		return []string{"--" + f.Name}
	}
	return []string{"--" + f.Name, "-" + string(f.Short)}
}

const zshForm = `(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
autoload -Uz bashcompinit && bashcompinit
`

// bashForm takes the names of commands, what flags take by command and flag, and what commands
// take. The line is cut at = as well as at spaces. Without an answer bash completes files.
const bashForm = `_hybridlimit() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= word words=
  COMPREPLY=()
  [[ $cur == = ]] && cur=
  [[ $prev == = ]] && prev=${COMP_WORDS[COMP_CWORD-2]}
  for word in "${COMP_WORDS[@]:1:$((COMP_CWORD-1))}"; do
    case $word in %s) command=$word; break ;; esac
  done
  case "$command $prev" in
%s  *) case $command in
%s    esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _hybridlimit hybridlimit
`

func bashCompletion(root *kong.Node) string {
	var values, commands strings.Builder
	for _, n := range append([]*kong.Node{root}, root.Children...) {
		name, words := n.Name, wordsOf(n)
		if n == root {
			name = ""
		}
		var files []string // flags whose values are not known
		for _, f := range flagsOf(n) {
			words = append(words, spellings(f)...)
			at := make([]string, 0, 2)
			for _, s := range spellings(f) {
				at = append(at, fmt.Sprintf(`"%s %s"`, name, s))
			}
			switch {
			case f.Enum != "":
				fmt.Fprintf(&values, "  %s) words=%q ;;\n", strings.Join(at, "|"), strings.Join(f.EnumSlice(), " "))
			case !f.IsBool():
				files = append(files, at...)
			}
		}
		if len(files) > 0 {
			fmt.Fprintf(&values, "  %s) ;;\n", strings.Join(files, "|"))
		}
		fmt.Fprintf(&commands, "    %q) words=%q ;;\n", name, strings.Join(words, " "))
	}
	return fmt.Sprintf(bashForm, strings.Join(wordsOf(root), "|"), values.String(), commands.String())
}

func fishCompletion(root *kong.Node) string {
	quote := func(text string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
	}
	var b strings.Builder
	b.WriteString("complete -c hybridlimit -e\n")
	for _, n := range append([]*kong.Node{root}, root.Children...) {
		where := "-n __fish_use_subcommand"
		if n != root {
			fmt.Fprintf(&b, "complete -c hybridlimit -n __fish_use_subcommand -f -a %s -d %s\n", n.Name, quote(n.Help))
			where = "-n '__fish_seen_subcommand_from " + n.Name + "'"
			if words := wordsOf(n); len(words) > 0 {
				fmt.Fprintf(&b, "complete -c hybridlimit %s -f -a %s\n", where, quote(strings.Join(words, " ")))
			}
		}
		for _, f := range flagsOf(n) {
			line := "complete -c hybridlimit " + where + " -l " + f.Name
			if f.Short != 0 {
				line += " -s " + string(f.Short)
			}
			switch {
			case f.Enum != "":
				line += " -x -a " + quote(strings.Join(f.EnumSlice(), " "))
			case !f.IsBool():
				line += " -r"
			}
			fmt.Fprintf(&b, "%s -d %s\n", line, quote(f.Help))
		}
	}
	return b.String()
}
