package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

func main() { os.Exit(run(os.Args[1:], table(), os.Stdout, os.Stderr)) }

// Exit codes.
const (
	exitSurvived = 1
	exitFailed   = 2
)

func run(args []string, all []mutant, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("mutants", flag.ContinueOnError)
	fs.SetOutput(stderr)
	root := fs.String("root", ".", "root of the module under test")
	only := fs.String("run", "", "only mutants whose name matches this `regexp`")
	every := fs.Int("every", 1, "only one of so many, which -draw chooses")
	draw := fs.Uint64("draw", 1, "`seed` of -every")
	jobs := fs.Int("jobs", runtime.NumCPU(), "mutants to check at a time")
	seed := fs.Uint64("seed", 1, "first seed of the simulator")
	list := fs.Bool("list", false, "say what the mutants break and what catches them, and do nothing")
	overlay := fs.String("overlay", "", "write into this `directory` what \"go build -overlay\" needs to build each mutant, and check nothing")
	verbose := fs.Bool("v", false, "show what the tests say about each mutant")
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return exitFailed
	}
	if fs.NArg() > 0 {
		fmt.Fprintf(stderr, "mutants: %q is no flag: to choose mutants say -run\n", fs.Arg(0))
		return exitFailed
	}
	name, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(stderr, "mutants:", err)
		return exitFailed
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(m mutant) bool { return !name.MatchString(m.name) })
	if *every > 1 {
		chosen = drawn(chosen, *every, *draw)
	}
	if *list {
		printList(stdout, chosen)
		return 0
	}
	if *overlay != "" {
		if err := writeOverlays(stdout, chosen, *root, *overlay); err != nil {
			fmt.Fprintln(stderr, "mutants:", err)
			return exitFailed
		}
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := &reporter{w: stdout, verbose: *verbose}
	l := &lab{root: *root, seed: *seed, jobs: max(*jobs, 1), tell: r.tell}
	begun := time.Now()
	if err := l.examine(ctx, chosen); err != nil {
		fmt.Fprintln(stderr, "mutants:", err)
		return exitFailed
	}
	fmt.Fprintf(stdout, "%d mutants, %d survived, %v\n", len(chosen), r.survived, time.Since(begun).Round(time.Second))
	if r.survived > 0 {
		return exitSurvived
	}
	return 0
}

func printList(w io.Writer, list []mutant) {
	for _, m := range list {
		fmt.Fprintf(w, "%s\n\t%s\n\t%s, caught by %v\n", m.name, m.breaks, m.at, m.by)
	}
}

// writeOverlays says where it has written each of them: other programs may want
// to know what a mutant does.
func writeOverlays(w io.Writer, list []mutant, root, dir string) (err error) {
	l := &lab{}
	if l.root, err = filepath.Abs(root); err != nil {
		return err
	}
	if l.tmp, err = filepath.Abs(dir); err != nil {
		return err
	}
	for _, m := range list {
		path, err := l.overlay(m, m.name)
		if err != nil {
			return err
		}
		fmt.Fprintln(w, path)
	}
	return nil
}

// reporter prints what has become of each mutant, as soon as it is known.
type reporter struct {
	mu       sync.Mutex
	w        io.Writer
	verbose  bool
	survived int
}

func (r *reporter) tell(f finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	verdict := "caught by"
	if !f.caught {
		verdict = "SURVIVED"
		r.survived++
	}
	fmt.Fprintf(r.w, "%-34s %s %-36v %5.1f s  %s\n", f.name, verdict, f.by, f.took.Seconds(), f.says)
	if r.verbose || !f.caught {
		fmt.Fprintf(r.w, "\t%s\n%s\n", f.breaks, f.output)
	}
}
