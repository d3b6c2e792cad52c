package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/doctor"
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/screen"
)

// doctorCmd checks a Redis.
type doctorCmd struct {
	SlowTrip    time.Duration `default:"62.5ms" help:"A round trip is too slow from here on: a quarter of the limiters' CommandTimeout."`
	SlowCommand time.Duration `default:"100ms" help:"A command in the slow log is too slow from here on."`
	redisFlags
}

// Run checks it.
func (c *doctorCmd) Run(p *program) error {
	if c.SlowTrip <= 0 || c.SlowCommand <= 0 {
		return usage(fmt.Errorf("--slow-trip is %v and --slow-command %v, must be above 0", c.SlowTrip, c.SlowCommand))
	}
	s, err := c.open()
	if err != nil {
		return err
	}
	defer s.Close()
	report, err := doctor.Examine(p.ctx, s.UniversalClient, s.survey, doctor.Options{
		SlowTrip: c.SlowTrip, SlowCommand: c.SlowCommand, Timeout: c.Timeout, Name: s.Name,
		Cluster: s.Cluster, Encrypted: s.Encrypted, Local: s.Local, Password: s.Password,
	})
	if err != nil {
		return s.failed(err)
	}
	if p.JSON {
		err = p.Object(report)
	} else {
		err = p.showReport(report)
	}
	if err == nil && report.Sick() {
		return found
	}
	return err
}

var severityStyles = map[doctor.Severity]screen.Style{doctor.Error: screen.Bad, doctor.Warning: screen.Warn, doctor.Note: screen.Strong}

func (p *program) showReport(r doctor.Report) error {
	var lines []error
	line := func(st screen.Style, indent int, format string, args ...any) {
		lines = append(lines, p.Line(st, indent, format, args...))
	}
	for _, s := range r.Servers {
		line(screen.Strong, 0, "%s: %s %s, %s", s.Name, orUnknown(s.Product), orUnknown(s.Version), orUnknown(s.Role))
		line(screen.Plain, 2, "  %s", s.Known)
	}
	for _, f := range r.Findings {
		at := ""
		if len(r.Servers) > 1 {
			at = " at " + f.Server
		}
		line(screen.Plain, 0, "")
		line(severityStyles[f.Severity], 0, "%s %s%s", f.Severity, f.ID, at)
		line(screen.Plain, 2, "  %s", screen.Clean(f.What))
		line(screen.Plain, 2, "  %s", f.Why)
		for _, fix := range f.Fix {
			line(screen.Good, 4, "  > %s", fix)
		}
	}
	if len(r.Unknown) > 0 {
		line(screen.Plain, 0, "")
	}
	for _, u := range r.Unknown {
		line(screen.Faint, 2, "cannot tell: %s. %s.", strings.Join(u.IDs, ", "), screen.Clean(u.Reason))
	}
	line(screen.Plain, 0, "")
	line(screen.Strong, 0, "%s", verdict(r))
	for _, err := range lines {
		if err != nil {
			return err
		}
	}
	return nil
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown"
	}
	return screen.Clean(text)
}

// verdict is the last line.
func verdict(r doctor.Report) string {
	counts := map[doctor.Severity]int64{}
	set := false
	for _, f := range r.Findings {
		counts[f.Severity]++
		for _, fix := range f.Fix {
			set = set || strings.HasPrefix(fix, "CONFIG SET ")
		}
	}
	text := fmt.Sprintf("%d checks: nothing is wrong", r.Checks)
	if len(r.Findings) > 0 {
		text = fmt.Sprintf("%d checks: %s, %s, %s", r.Checks, screen.Many(counts[doctor.Error], "error", "errors"),
			screen.Many(counts[doctor.Warning], "warning", "warnings"), screen.Many(counts[doctor.Note], "note", "notes"))
	}
	if len(r.Unknown) > 0 {
		text += ", and some could not be made"
	}
	if set {
		text += ". CONFIG SET lasts until a restart: the same line without CONFIG SET in redis.conf, or CONFIG REWRITE, keeps it"
	}
	return text + "."
}
