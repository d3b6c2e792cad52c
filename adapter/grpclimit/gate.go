package grpclimit

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/adapter/internal/undecided"
	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

// gate decides about calls. It is immutable.
type gate struct {
	*config
	lim      limit.ContextLimiter
	follower *follower // nil unless servers are followed
	log      *undecided.Log
	kept     *undecided.Log // about units that could not be handed back
	owed     *undecided.Log // about costs that could not be settled
}

func newGate(client bool, lim limit.ContextLimiter, rule *limit.Rule, key KeyFunc, opts []Option) (*gate, error) {
	c := configure(client, rule, key, opts)
	g := &gate{
		config: c, lim: lim,
		log:  undecided.New(c.logger, clock.System{}, "grpclimit: a call cannot be decided"),
		kept: undecided.New(c.logger, clock.System{}, "grpclimit: units cannot be handed back"),
		owed: undecided.New(c.logger, clock.System{}, "grpclimit: a cost cannot be settled"),
	}
	if inside.IsNil(lim) {
		c.bad("the limiter is nil")
		return nil, c.err()
	}
	if c.follow != 0 {
		g.follower = newFollower(lim, c.follow)
	}
	g.checkRules()
	if err := c.err(); err != nil {
		return nil, err
	}
	if c.dry {
		c.makeDry()
	}
	return g, nil
}

// checkRules asks the limiter whether it can decide by these rules: one that cannot would
// refuse each call.
func (g *gate) checkRules() {
	rules := []*limit.Rule{g.message}
	for _, l := range g.limits {
		rules = append(rules, l.rule)
	}
	for _, r := range rules {
		if !r.Valid() {
			continue // reported, or there is none
		}
		if err := inside.CheckRule(g.lim, r); err != nil {
			g.bad("%w", err)
		}
	}
}

// makeDry replaces the rules once, as a rule that is new for each check is slower.
func (c *config) makeDry() {
	for i := range c.limits {
		c.limits[i].rule = c.limits[i].rule.DryRun()
	}
	c.message = c.message.DryRun()
}

// claim is what a call has taken.
type claim struct {
	checks []limit.Check // empty if the call is not counted: unlimited, or a dry run without a key
	// unsure tells that a limit whose rule is a dry run may have taken nothing.
	unsure bool
	// failed tells that the limiter did not answer: nothing is handed back.
	failed bool
}

// admit takes the units of a call, or returns why it is refused.
func (g *gate) admit(ctx context.Context, call Call) (claim, error) {
	rule := g.ruleOf(ctx, call)
	if rule == limit.Unlimited() {
		undecided.CountExempt(g.lim, g.limits[0].rule.Name())
		return claim{}, nil
	}
	checks, err := g.checksOf(ctx, call, rule)
	if err != nil {
		undecided.Count(g.lim, rule)
		return claim{}, g.conclude(ctx, Decision{Call: call, Err: noKey(g.keyCode, err)})
	}
	if g.wait {
		err := g.lim.WaitN(ctx, checks[0].Key, checks[0].Rule, checks[0].N)
		d := Decision{Call: call, Rule: checks[0].Rule}
		if err != nil {
			d.Err = notWaited(ctx, d.Rule, g.subject(checks[0].Key), err)
		}
		return claim{checks: checks, unsure: true, failed: err != nil}, unlessDry(checks, g.conclude(ctx, d))
	}
	by, res, err := g.take(ctx, checks)
	d := Decision{Call: call, Rule: by.Rule, Result: res, Err: g.refusal(ctx, by, res, err)}
	return claim{checks: checks, unsure: res.WouldRefuse || !res.Allowed, failed: err != nil}, unlessDry(checks, g.conclude(ctx, d))
}

// unlessDry returns err, or nil if the limiter was unavailable and all rules are dry runs: they refuse
// nothing.
func unlessDry(checks []limit.Check, err error) error {
	if isUnavailable(err) && !slices.ContainsFunc(checks, func(q limit.Check) bool { return !q.Rule.IsDryRun() }) {
		return nil
	}
	return err
}

// ruleOf returns the first rule of a call.
func (g *gate) ruleOf(ctx context.Context, call Call) *limit.Rule {
	rule := g.limits[0].rule
	if g.plan == nil {
		return rule
	}
	switch planned := g.plan(ctx, call); {
	case planned == nil:
		return rule
	case g.dry && planned != limit.Unlimited():
		return planned.DryRun()
	default:
		return planned
	}
}

// checksOf returns what is to be asked of the limiter.
func (g *gate) checksOf(ctx context.Context, call Call, first *limit.Rule) ([]limit.Check, error) {
	n := int64(1)
	if g.cost != nil {
		n = units(g.cost(ctx, call))
	}
	checks := make([]limit.Check, len(g.limits))
	for i, l := range g.limits {
		key, err := l.key.of(ctx, call)
		if err != nil {
			return nil, err
		}
		checks[i] = limit.Check{Key: key, Rule: l.rule, N: n}
	}
	checks[0].Rule = first
	return checks, nil
}

// units returns how many units a cost is. A forgotten one must not let everything pass.
func units(cost int64) int64 {
	if cost == 0 {
		return 1
	}
	return cost
}

// take asks the limiter, and returns which check decided: the first if none did.
func (g *gate) take(ctx context.Context, checks []limit.Check) (limit.Check, limit.Result, error) {
	by := checks[0]
	if len(checks) == 1 {
		res, err := g.lim.Take(ctx, by.Key, by.Rule, by.N)
		return by, res, err
	}
	v, err := g.lim.TakeAll(ctx, checks...)
	if v.By >= 0 && v.By < len(checks) {
		by = checks[v.By]
	}
	return by, v.Result, err
}

// refusal returns the error of a check that was refused, or nil.
func (g *gate) refusal(ctx context.Context, q limit.Check, res limit.Result, err error) error {
	switch {
	case err != nil:
		return notAnswered(ctx, q.Rule, res, err)
	case res.Allowed:
		return nil
	case res.Source == limit.SourceInvalid:
		return notDecided(q.Rule, res, nil)
	}
	return exceeded(q.Rule, res, g.subject(q.Key), nil)
}

func (g *gate) subject(key string) string {
	if g.showKey {
		return key
	}
	return ""
}

// conclude tells the observer, and returns the error that the call ends with.
func (g *gate) conclude(ctx context.Context, d Decision) error {
	if g.observer != nil {
		g.observer(ctx, d)
	}
	away := isUnavailable(d.Err)
	if ours := away || codeOf(d.Err) == codes.Internal; ours || d.Err != nil && d.Rule == nil {
		g.log.Note(ctx, ours, d.Err)
	}
	if g.dry || g.open && away {
		return nil
	}
	return d.Err
}

// codeOf returns the code that gRPC sends for the error of a handler.
func codeOf(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}
