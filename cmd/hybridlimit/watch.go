package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/screen"
	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/limit"
)

// watchCmd shows a key, or totals, again and again.
type watchCmd struct {
	Key      string        `arg:"" optional:"" help:"Key, as limiters are asked for it. Without one: totals."`
	Interval time.Duration `default:"2s" help:"Time between two looks, 10ms to 1h."`
	Count    int           `placeholder:"N" help:"End after so many looks. Default: when interrupted."`
	Rule     string        `group:"rule" placeholder:"RULE" help:"A name in --rules, or NAME=ALGORITHM,LIMIT/PER[,FIELD=VALUE...], or NAME=LIMIT/PERIOD."`
	rulesFlags
	redisFlags
}

func (c *watchCmd) check() error {
	var errs []error
	if c.Interval < 10*time.Millisecond || c.Interval > time.Hour {
		errs = append(errs, fmt.Errorf("--interval is %v, must be 10ms to 1h", c.Interval))
	}
	if c.Count < 0 {
		errs = append(errs, fmt.Errorf("--count is %d, must not be negative", c.Count))
	}
	if (c.Key == "") != (c.Rule == "") {
		errs = append(errs, errors.New("a key needs a --rule, and totals have none"))
	}
	return usage(errors.Join(errs...))
}

// watched is one look, for people and for programs.
type watched struct {
	row    []string
	record any
}

// Run looks until it is interrupted.
func (c *watchCmd) Run(p *program) error {
	if err := c.check(); err != nil {
		return err
	}
	columns, see := totalColumns, seeTotals
	if c.Key != "" {
		keys, list, err := ruleFlags{c.Rule, c.rulesFlags}.counters(c.Key)
		if err != nil {
			return err
		}
		if len(list) > 1 {
			return usage(fmt.Errorf("%s has several limits: watch one of them, as --rule %s=LIMIT/PERIOD", c.Rule, list[0].Name()))
		}
		if list[0] == limit.Unlimited() {
			return usage(fmt.Errorf("%s is unlimited by %s: nothing is counted", escape.Quote(c.Key), c.Rule))
		}
		columns, see = watchColumns, func(p *program, s *store) (watched, error) { return seeKey(p, s, keys[0], list[0]) }
	}
	s, err := c.open()
	if err != nil {
		return err
	}
	defer s.Close()
	p.warnOfLayout(s, prefixScan)
	return c.loop(p, s, columns, see)
}

// loop prints a row for each look. On a terminal the latest takes the place of the one
// before. An outage is a row, too, unless it is there from the beginning.
func (c *watchCmd) loop(p *program, s *store, columns []screen.Column, see func(*program, *store) (watched, error)) error {
	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	rows := &screen.Table{Columns: columns}
	var last shownRow
	for n := 1; ; n++ {
		w, err := see(p, s)
		switch {
		case p.ctx.Err() != nil:
			return nil
		case err != nil && n == 1:
			return err
		case err != nil:
			w = watched{nil, watchError{Time: stamp(), Error: err.Error()}}
		}
		if last, err = p.showWatched(rows, w, err, last); err != nil {
			return err
		}
		if n == c.Count {
			return nil
		}
		select {
		case <-p.ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// watchError is what a program gets while Redis is away.
type watchError struct {
	Time  string `json:"time"`
	Error string `json:"error"`
}

// stamp is when a look was taken, by the clock of this machine.
func stamp() string { return time.Now().Format(time.RFC3339Nano) }

// shownRow is what the latest look has left on the screen.
type shownRow uint8

const (
	nothingShown shownRow = iota
	rowShown
	errorShown
)

// showWatched prints a look, or why there is none.
func (p *program) showWatched(t *screen.Table, w watched, failed error, last shownRow) (shownRow, error) {
	now := time.Now().Format(time.TimeOnly)
	if p.JSON {
		return last, p.Record(w.record)
	}
	if failed != nil {
		return errorShown, p.Line(screen.Bad, 2, "%s  %v", now, failed)
	}
	t.Rows = nil
	t.Add(append([]string{now}, w.row...)...)
	switch {
	case last == nothingShown, last == errorShown && p.Terminal:
		return rowShown, p.Table(t)
	case p.Terminal:
		if err := p.Up(2); err != nil { // the titles and the row
			return last, err
		}
		return rowShown, p.Table(t)
	}
	return rowShown, p.Rows(t)
}

// The columns have a width that does not depend on the first row.
var watchColumns = []screen.Column{
	{Title: "TIME    "}, {Title: "        USED", Right: true}, {Title: "       LIMIT", Right: true}, {Title: "        LEFT", Right: true},
	{Title: "       NEXT", Right: true}, {Title: "  UNUSED IN", Right: true},
}

// watchedKey is a key for programs.
type watchedKey struct {
	Time string `json:"time"`
	keyJSON
}

func seeKey(p *program, s *store, key string, rule *limit.Rule) (watched, error) {
	looks, err := p.looks(s, []string{key}, []*limit.Rule{rule})
	if err != nil {
		return watched{}, err
	}
	var texts []string
	for _, cell := range looks[0].row()[2:] {
		texts = append(texts, cell.Text)
	}
	return watched{texts, watchedKey{stamp(), looks[0].json()}}, nil
}

var totalColumns = []screen.Column{
	{Title: "TIME    "}, {Title: " NODES", Right: true}, {Title: "      KEYS", Right: true}, {Title: "  MEMORY", Right: true},
	{Title: " COMMANDS/S", Right: true}, {Title: " CLIENTS", Right: true},
}

// totals is what Redis says of itself. What it does not say is -1, and null for programs.
type totals struct {
	Time     string `json:"time"`
	Nodes    int    `json:"nodes"`
	Keys     *int64 `json:"keys"`
	Memory   *int64 `json:"memory_bytes"`
	Commands *int64 `json:"commands_per_second"`
	Clients  *int64 `json:"clients"`
}

func seeTotals(p *program, s *store) (watched, error) {
	fleet, err := s.survey.Fleet(p.ctx)
	if err != nil {
		return watched{}, s.failed(err)
	}
	masters, err := s.survey.Masters(p.ctx)
	if err != nil {
		return watched{}, s.failed(err)
	}
	t := totals{Time: stamp(), Nodes: fleet.Nodes}
	for _, m := range masters {
		if n, err := m.DBSize(p.ctx).Result(); err == nil {
			addTo(&t.Keys, n)
		}
		text, err := m.Info(p.ctx).Result()
		if errors.Is(err, context.Canceled) {
			return watched{}, err
		}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				continue
			}
			switch name {
			case "used_memory":
				addTo(&t.Memory, n)
			case "instantaneous_ops_per_sec":
				addTo(&t.Commands, n)
			case "connected_clients":
				addTo(&t.Clients, n)
			}
		}
	}
	return watched{[]string{screen.Count(int64(t.Nodes)), shown(t.Keys, screen.Count), shown(t.Memory, screen.Bytes), shown(t.Commands, screen.Count), shown(t.Clients, screen.Count)}, t}, nil
}

func addTo(sum **int64, n int64) {
	if *sum == nil {
		*sum = new(int64)
	}
	**sum += n
}

// shown returns a number as text, or a dash if it is not known.
func shown(n *int64, text func(int64) string) string {
	if n == nil {
		return "-"
	}
	return text(*n)
}
