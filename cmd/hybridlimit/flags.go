package main

import (
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// variablePrefix begins the variables of the environment that set flags.
const variablePrefix = "HYBRIDLIMIT_"

// serveVariables gives each flag of serve a variable. Other commands have those of their tags: what
// is set for a server must not change what they do.
func serveVariables(k *kong.Kong) error {
	for _, command := range k.Model.Children {
		if command.Name != "serve" {
			continue
		}
		for _, flag := range command.Flags {
			flag.Envs = []string{variablePrefix + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))}
			flag.Tag.Envs = flag.Envs
		}
	}
	return nil
}

// placeholders gives each flag the name of its type where help would show the default a second time.
func placeholders(k *kong.Kong) error {
	for _, command := range append(k.Model.Children, k.Model.Node) {
		for _, flag := range command.Flags {
			if flag.HasDefault && flag.PlaceHolder == "" && !flag.IsBool() {
				flag.PlaceHolder = strings.ToUpper(flag.Target.Type().Name())
			}
		}
	}
	return nil
}

// helpOf returns what help says of a flag or an argument: its default and its variable belong to it.
func helpOf(v *kong.Value) string {
	full := *v
	if v.HasDefault && !strings.Contains(v.Help, "efault ") {
		full.Help += " Default " + v.Default + "."
	}
	return kong.DefaultHelpValueFormatter(&full)
}

// dropEmptyVariables unsets variables that are empty: kong would read them as values.
func dropEmptyVariables() {
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); value == "" && strings.HasPrefix(name, variablePrefix) {
			_ = os.Unsetenv(name) // a name that the system itself has
		}
	}
}

var (
	flagName   = regexp.MustCompile(`--[a-z][a-z-]*`)
	optionName = regexp.MustCompile(`\b(?:hybrid|remote|resp|server): (?:Options\.)?([A-Z]\w+)`)
)

// inFlags returns a message in words of the command line: options of packages are called by the
// flags that set them, and the variables that have set flags are named.
func inFlags(ctx *kong.Context, text string) string {
	if ctx == nil {
		return text
	}
	flags := ctx.Flags()
	text = optionName.ReplaceAllStringFunc(text, func(option string) string {
		if f := flagOf(flags, optionName.FindStringSubmatch(option)[1]); f != nil {
			return "--" + f.Name
		}
		return option
	})
	given := map[*kong.Flag]bool{} // in the arguments
	for _, p := range ctx.Path {
		given[p.Flag] = true
	}
	var from []string
	for _, f := range flags {
		if len(f.Envs) == 0 || given[f] || os.Getenv(f.Envs[0]) == "" || strings.Contains(text, f.Envs[0]) {
			continue
		}
		if slices.Contains(flagName.FindAllString(text, -1), "--"+f.Name) {
			from = append(from, f.Envs[0])
		}
	}
	if len(from) > 0 {
		first, rest, more := strings.Cut(text, "\n")
		if text = first + " (from " + strings.Join(from, ", ") + ")"; more {
			text += "\n" + rest
		}
	}
	return text
}

// flagOf returns the flag that sets an option; nil if there is none. MaxConns of package resp is
// --resp-max-conns, and KeyPrefix is --prefix.
func flagOf(flags []*kong.Flag, option string) *kong.Flag {
	option = strings.ToLower(option)
	plain := func(f *kong.Flag) string { return strings.ReplaceAll(f.Name, "-", "") }
	at := slices.IndexFunc(flags, func(f *kong.Flag) bool { return plain(f) == option })
	if at < 0 {
		at = slices.IndexFunc(flags, func(f *kong.Flag) bool {
			return strings.HasSuffix(plain(f), option) || strings.HasSuffix(option, plain(f))
		})
	}
	if at < 0 {
		return nil
	}
	return flags[at]
}
