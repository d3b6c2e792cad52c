package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/screen"
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server"
)

// validateCmd checks rules files.
type validateCmd struct {
	Files []string `arg:"" name:"file" help:"Rules files; - is what is piped in."`
	For   string   `default:"any" enum:"any,serve" help:"What is to use the files: ${enum}. serve cannot use every rule that there is."`
}

// problemJSON is a mistake for programs.
type problemJSON struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

// fileJSON is a file for programs.
type fileJSON struct {
	File     string        `json:"file"`
	Valid    bool          `json:"valid"`
	Size     *sizeJSON     `json:"size,omitempty"` // of a valid file
	Problems []problemJSON `json:"problems"`
}

type sizeJSON struct {
	Rules       int `json:"rules"`
	Plans       int `json:"plans"`
	Overrides   int `json:"overrides"`
	Domains     int `json:"domains"`
	Descriptors int `json:"descriptors"`
}

// Run checks the files and prints every problem as file:line:column, like a compiler.
func (c *validateCmd) Run(p *program) error {
	var o rules.Options
	if c.For == "serve" {
		o = server.RulesFor(o)
	}
	bad := false
	list := make([]fileJSON, len(c.Files))
	for i, file := range c.Files {
		set, err := p.readRules(file, o)
		var problems rules.Problems
		if err != nil && !errors.As(err, &problems) {
			return err
		}
		list[i] = fileOf(file, set, problems)
		bad = bad || len(problems) > 0
		if p.JSON {
			continue
		}
		if err := p.showFile(list[i], problems); err != nil {
			return err
		}
	}
	if p.JSON {
		if err := p.Object(struct {
			Files []fileJSON `json:"files"`
		}{list}); err != nil {
			return err
		}
	}
	if bad {
		return found
	}
	return nil
}

// readRules reads a rules file, or what is piped in.
func (p *program) readRules(file string, o rules.Options) (*rules.Set, error) {
	if file != "-" {
		return o.Load(file)
	}
	text, err := io.ReadAll(io.LimitReader(p.in, rules.MaxBytes+1))
	if err != nil {
		return nil, err
	}
	return o.Parse("-", text)
}

func fileOf(file string, set *rules.Set, problems rules.Problems) fileJSON {
	out := fileJSON{File: file, Valid: len(problems) == 0, Problems: []problemJSON{}}
	for _, pr := range problems {
		out.Problems = append(out.Problems, problemJSON{pr.Line, pr.Column, pr.Field, pr.Message})
	}
	if out.Valid {
		size := set.Size()
		out.Size = &sizeJSON{size.Rules, size.Plans, size.Overrides, size.Domains, size.Descriptors}
	}
	return out
}

// showFile prints a file. Problems are not wrapped: editors read the lines.
func (p *program) showFile(f fileJSON, problems rules.Problems) error {
	for _, pr := range problems {
		if _, err := fmt.Fprintln(p.out, pr); err != nil {
			return err
		}
	}
	if !f.Valid {
		return nil
	}
	many := func(n int, word string) string { return screen.Many(int64(n), word, word+"s") }
	text := fmt.Sprintf("%s: valid: %s, %s, %s", screen.Clean(f.File), many(f.Size.Rules, "rule"), many(f.Size.Plans, "plan"), many(f.Size.Overrides, "override"))
	if f.Size.Domains > 0 {
		text += fmt.Sprintf(", %s with %s", many(f.Size.Domains, "domain"), many(f.Size.Descriptors, "descriptor"))
	}
	return p.Line(screen.Plain, 2, "%s", text)
}
