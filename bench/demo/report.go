package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// report is the result of a run.
type report struct {
	Nodes    int           `json:"nodes"`
	Rule     string        `json:"rule"`
	Limit    int64         `json:"limit"`
	WindowMS int64         `json:"window_ms"`
	Redis    string        `json:"redis"`
	Keys     int           `json:"keys"`
	Overload float64       `json:"overload"`
	Phases   []phaseReport `json:"phases"`

	AdmittedTotal int64 `json:"admitted_total"` // as those who asked have counted
	RedisTotal    int64 `json:"redis_total"`    // booked before a loss + ledgers + expired + pending
	BookedBefore  int64 `json:"booked_before_loss"`
	LedgerUnits   int64 `json:"ledger_units"` // by Redis' own account, since it last lost its data
	ExpiredUnits  int64 `json:"expired_units"`
	PendingUnits  int64 `json:"pending_units"`
	LostUnits     int64 `json:"lost_units"`
	DoubleCounted int64 `json:"double_counted_units"`

	DataLost       bool     `json:"data_lost"`
	LossesDetected int64    `json:"losses_detected"` // per node and shard
	AfterLoss      int64    `json:"exhausted_key_admitted_after_loss"`
	NoticedMS      float64  `json:"outage_noticed_ms"` // by the last node
	Broken         []string `json:"broken_promises"`
	OK             bool     `json:"ok"`
	Interrupted    bool     `json:"interrupted,omitempty"` // nothing was judged
}

// phaseReport is one phase of it.
type phaseReport struct {
	Name         string  `json:"name"`
	Seconds      float64 `json:"seconds"`
	Offered      int64   `json:"offered"`
	Admitted     int64   `json:"admitted"`
	AllowedBound int64   `json:"allowed_bound"` // the most that could be admitted if every window were as full as promised
	WorstWindow  int64   `json:"worst_window"`  // the fullest of a hot key
	WindowBound  int64   `json:"window_bound"`  // what it may hold
	ViewAgeMS    float64 `json:"view_age_ms"`   // S+δ, as measured, at its longest
	P50          int64   `json:"check_p50_ns"`
	P99          int64   `json:"check_p99_ns"`
	Commands     int64   `json:"redis_commands"`
}

// blank is the report of a run of which nothing has been counted.
func blank(s *show) *report {
	return &report{
		Nodes: s.nodes, Rule: s.rule.String(), Limit: s.rule.Limit(), WindowMS: s.rule.Period().Milliseconds(),
		Redis: s.world.name, Keys: s.keys, Overload: s.overload, Broken: []string{},
	}
}

// newInterrupted returns what has been counted of a run that has ended early. It judges
// nothing: the nodes have not settled.
func newInterrupted(s *show) *report {
	r := blank(s)
	r.Interrupted = true
	v := newVerdict(s)
	for p := healthy; p < phases && s.begun[p] > 0; p++ {
		if s.begun[p+1] == 0 { // p was on
			s.begun[p+1], s.commands[p+1] = s.end, s.commands[phases]
		}
		last := v.phase(p, func(string, ...any) {})
		r.Phases = append(r.Phases, last)
		r.AdmittedTotal += last.Admitted
		if s.begun[p+1] == s.end {
			break
		}
	}
	return r
}

func newReport(s *show, b *books) *report {
	r := blank(s)
	v := newVerdict(s)
	for p := range phases {
		r.Phases = append(r.Phases, v.phase(p, r.breach))
		r.AdmittedTotal += r.Phases[p].Admitted
	}
	r.account(b)
	r.judgeStates(v)
	r.judgeLoss(v)
	r.OK = len(r.Broken) == 0
	return r
}

func (r *report) breach(format string, args ...any) {
	r.Broken = append(r.Broken, fmt.Sprintf(format, args...))
}

// account checks that every unit is accounted for, once.
func (r *report) account(b *books) {
	for _, units := range b.ledger {
		r.LedgerUnits += units
	}
	r.BookedBefore, r.ExpiredUnits, r.PendingUnits, r.LossesDetected = b.before, b.expired, b.pending, b.losses
	r.RedisTotal = b.before + r.LedgerUnits + b.expired + b.pending
	r.LostUnits, r.DoubleCounted = b.differ()
	if b.err != nil {
		r.breach("the nodes did not settle: %v", b.err)
	}
	if b.pending != 0 {
		r.breach("%d units still pending after Flush", b.pending)
	}
	if b.counted != b.quota && (b.before == 0 || b.counted > b.quota) {
		r.breach("%d units of the quota admitted, Redis' counter says %d", b.quota, b.counted)
	}
	if b.leak != "" {
		r.breach("units leaked: %s", b.leak)
	}
	if r.LostUnits+r.DoubleCounted != 0 {
		r.breach("nodes and ledgers differ: %d units lost, %d counted twice", r.LostUnits, r.DoubleCounted)
	}
	if r.RedisTotal != r.AdmittedTotal {
		r.breach("%d units admitted, %d accounted for", r.AdmittedTotal, r.RedisTotal)
	}
}

// judgeStates checks that every node has noticed the outage, however long that
// took. On a machine too busy to answer a node may have been degraded before.
func (r *report) judgeStates(v *verdict) {
	s := v.show
	outage := span{s.down[0].from, s.begun[recovered]}
	for i, history := range v.histories {
		at := slices.IndexFunc(history, func(c change) bool {
			return c.mode == hybrid.Degraded && c.told > outage.from && c.since < outage.to
		})
		switch {
		case settled(history, hybrid.Degraded, span{outage.from, outage.from}):
		case at < 0:
			r.breach("node %d has not noticed the outage", i)
		default:
			r.NoticedMS = max(r.NoticedMS, float64(history[at].told-outage.from)/1e6)
		}
	}
}

// judgeLoss checks that a loss was seen where there was one, and only there,
// and that a quota that had been used up did not come back: beyond its limit,
// or what had been admitted by then, there may be at most what is asked before
// the loss is detected, a heartbeat and δ later.
func (r *report) judgeLoss(v *verdict) {
	r.DataLost = v.show.atLoss != nil
	if r.DataLost != (r.LossesDetected > 0) {
		r.breach("data lost: %v, losses detected: %d", r.DataLost, r.LossesDetected)
	}
	if !r.DataLost {
		return
	}
	quota := v.oracles[len(v.oracles)-1]
	from := int((v.show.lossAt - v.show.start) / slot)
	until := min(from+int((heartbeat+commandTimeout)/slot)+1, quota.slots)
	used, asked, all := int64(0), int64(0), int64(0)
	for _, n := range quota.nodes {
		used, all = used+n.admitted[from], all+n.admitted[quota.slots]
		asked += n.offered[until] - n.offered[from]
	}
	r.AfterLoss = max(0, all-max(used, quota.limit))
	if r.AfterLoss > asked {
		r.breach("%d units of a used-up quota admitted after Redis lost its data, at most %d allowed", r.AfterLoss, asked)
	}
}

// verdict is the oracles of all watched keys.
type verdict struct {
	show      *show
	histories [][]change
	circ      []circumstance
	oracles   []*oracle
}

// newVerdict reads the records of all nodes. The load has ended.
func newVerdict(s *show) *verdict {
	v := &verdict{show: s}
	p := past{start: s.start, down: s.down}
	for _, n := range s.fleet.nodes {
		n.mu.Lock() // history may still grow
		p.nodes = append(p.nodes, slices.Clone(n.history))
		n.mu.Unlock()
		failed, slow := n.wire.exchanges(s.down)
		p.failed, p.slow, p.stalls = append(p.failed, failed...), append(p.slow, slow...), append(p.stalls, n.stalls...)
	}
	v.histories = p.nodes
	v.circ = p.circumstances(int((s.end-s.start)/slot) + 1)
	for w, i := range s.traffic.watched {
		var records []record
		for _, n := range s.fleet.nodes {
			records = append(records, n.records[w])
		}
		v.oracles = append(v.oracles, newOracle(s.traffic.items[i].rule, records, v.circ))
	}
	return v
}

// phase judges a phase: each watched key in every window that ends in it.
func (v *verdict) phase(p phase, breach func(string, ...any)) phaseReport {
	s := v.show
	from, to := int((s.begun[p]-s.start)/slot), int((s.begun[p+1]-s.start)/slot)
	r := phaseReport{
		Name: p.String(), Seconds: (s.begun[p+1] - s.begun[p]).Seconds(), Commands: s.commands[p+1] - s.commands[p],
	}
	found := make([]finding, len(v.oracles))
	for w, o := range v.oracles {
		f := o.windows(from, to)
		found[w] = f
		it := s.traffic.items[s.traffic.watched[w]]
		if f.broken > 0 {
			breach("%s: %s: %d windows above their bound; in the one that ends at %.2f s %d were admitted, at most %d allowed",
				p, it.key, f.broken, (time.Duration(f.worstEnd) * slot).Seconds(), f.worst, f.allowed)
		}
		if f.starved > 0 {
			breach("%s: %s: %d windows in which less than %d %% of the limit was admitted, in the emptiest %d of %d",
				p, it.key, f.starved, leastPercent, f.least, it.rule.Limit())
		}
		if it.rule == s.rule && f.admitted > r.WorstWindow {
			r.WorstWindow, r.WindowBound = f.admitted, f.bound
		}
	}
	for _, c := range v.circ[from:min(to, len(v.circ))] {
		r.ViewAgeMS = max(r.ViewAgeMS, float64(c.age)/1e6)
	}
	var timings []int64
	for _, n := range s.fleet.nodes {
		timings = append(timings, n.part[p].timings...)
	}
	r.P50, r.P99 = percentile(timings, 0.5), percentile(timings, 0.99)
	for i := range s.traffic.items {
		offered, admitted := s.fleet.counts(p, i)
		r.Offered, r.Admitted = r.Offered+offered, r.Admitted+admitted
		if w := s.traffic.watch[i]; w >= 0 {
			windows := int64((to-from)/v.oracles[w].window + 1)
			offered = min(offered, windows*found[w].top)
		}
		r.AllowedBound += offered // of a key that is not watched: less than its limit
	}
	return r
}

// counts returns what all nodes were offered and admitted of an item.
func (f *fleet) counts(p phase, item int) (offered, admitted int64) {
	for _, n := range f.nodes {
		offered += n.part[p].offered[item]
		admitted += n.part[p].admitted[item]
	}
	return offered, admitted
}

func (r *report) print(out io.Writer) {
	fmt.Fprintln(out)
	row := func(cells ...any) {
		fmt.Fprintf(out, "%-9s %5s %7s %8s %8s %7s %7s %6s %6s %8s\n", cells...)
	}
	row("", "", "", "", "admitted", "fullest", "window", "check", "check", "Redis")
	row("phase", "secs", "offered", "admitted", "at most", "window", "at most", "p50", "p99", "commands")
	for _, p := range r.Phases {
		row(p.Name, tenths(p.Seconds), count(p.Offered), count(p.Admitted), count(p.AllowedBound),
			count(p.WorstWindow), count(p.WindowBound), short(p.P50), short(p.P99), count(p.Commands))
	}
	fmt.Fprintln(out)
	say := func(format string, args ...any) { fmt.Fprint(out, wrapped(fmt.Sprintf(format, args...))) }
	say("Admitted at most: by all nodes, of all keys, if every window were as full as is promised.")
	say("Fullest window: of a hot key, limit %d per %v. Window at most: what is promised for that very window.",
		r.Limit, time.Duration(r.WindowMS)*time.Millisecond)
	if r.Interrupted {
		say("Interrupted: %d units admitted until then. The nodes have not settled, so nothing is judged.", r.AdmittedTotal)
		return
	}
	say("The outage was noticed by all nodes after %.0f ms.", r.NoticedMS)
	if r.DataLost {
		say("Redis lost all data: noticed for %d shards of all nodes; %d units passed beyond a quota used up before.",
			r.LossesDetected, r.AfterLoss)
	}
	say("Units: %d admitted = %d accounted for (%d confirmed before a loss of data, %d in Redis' own ledger, %d expired, %d pending).",
		r.AdmittedTotal, r.RedisTotal, r.BookedBefore, r.LedgerUnits, r.ExpiredUnits, r.PendingUnits)
	say("Lost: %d. Counted twice: %d.", r.LostUnits, r.DoubleCounted)
	if r.OK {
		say("All promises kept.")
		return
	}
	say("BROKEN PROMISES:")
	for _, b := range r.Broken {
		say("- %s", b)
	}
}
