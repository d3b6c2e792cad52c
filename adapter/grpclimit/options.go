package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Option changes an interceptor. A constructor reports every option that it cannot use.
type Option func(*config)

// Decision is what an interceptor decided about a call or a message.
type Decision struct {
	Call Call
	// Rule is the rule that decided; nil if there was no key.
	Rule *limit.Rule
	// Result is the limiter's answer; WouldRefuse in it tells of dry runs. It is zero
	// with [Wait], and if the limiter was not asked.
	Result limit.Result
	// Err is why the call is refused, or would be if [DryRun] or [FailOpen] did not let it
	// pass; or why a server's RetryInfo could not be followed. Else nil.
	Err error
}

// limited is one limit of a call.
type limited struct {
	rule *limit.Rule
	key  KeyFunc
}

type config struct {
	limits   []limited // the first is the constructor's own
	plan     func(context.Context, Call) *limit.Rule
	cost     func(context.Context, Call) int64
	settle   func(context.Context, Call, End) int64 // nil: what Cost says is what a call costs
	dry      bool
	open     bool // calls pass while the limiter is unavailable
	keyCode  codes.Code
	showKey  bool
	refunds  map[codes.Code]bool // nil: no refunds
	message  *limit.Rule         // nil: messages are not counted
	perMsg   func(context.Context, any) int64
	wait     bool
	follow   time.Duration // longest pause; 0: none
	observer func(context.Context, Decision)
	logger   *slog.Logger // nil: the default one

	servers, clients []string // options that are only for one side
	problems         []error
}

func (c *config) bad(format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf("grpclimit: "+format, args...))
}

// Plan chooses the rule of each call, such as by what a customer has paid. nil, as of a plan
// that nobody knows, means the rule that the constructor was given: to let a call pass,
// such as a health check, takes [limit.Unlimited]: it is not counted under any rule, nor are
// its messages, and it needs no key. A limiter of package hybrid counts it as exempt from the rule of
// the constructor. Rules of one name share the counter of a key. Return rules that were built
// once.
func Plan(plan func(ctx context.Context, call Call) *limit.Rule) Option {
	return func(c *config) {
		c.plan = plan
		if plan == nil {
			c.bad("Plan: the function is nil")
		}
	}
}

// Cost says how many units a call takes, under each of its rules. Default 1. A cost of 0 is
// 1, as that of a [limit.Check]; with one below 0 the call is refused with codes.Internal.
func Cost(cost func(ctx context.Context, call Call) int64) Option {
	return func(c *config) {
		c.cost = cost
		if cost == nil {
			c.bad("Cost: the function is nil")
		}
	}
}

// Settle is for a cost that is known only afterwards, such as the tokens of a reply. The function
// returns how many units the call has really cost, under each of its rules: what [Cost] has said
// is an estimate then, and the difference is charged, whether it fits or not, or handed back. A
// cost of 0 is 0: all is handed back. A negative one is an error in the log, and the estimate
// stays. For limits with other units chain another interceptor.
//
// It is called once for each call that was admitted, when it has ended, also if the handler
// panics or the caller has gone; not for a call that [RefundOn] hands back, nor for what a dry run
// would have refused. A client's stream has ended when RecvMsg says so: while it does not, the
// estimate counts. ctx is the call's, and may have ended. Units of messages (see [EachMessage])
// stay as they are. The limiter must have Charge and Refund. With one of package remote the end
// of the call waits for a round trip for each rule; an error is logged, and the estimate stays.
func Settle(cost func(ctx context.Context, call Call, end End) int64) Option {
	return func(c *config) {
		c.settle = cost
		if cost == nil {
			c.bad("Settle: the function is nil")
		}
	}
}

// And adds a limit: a call must be admitted by all of them, and one that is refused
// consumes nothing of any. The limiter must have TakeAll. With one of package remote on a
// Cluster all keys of a call must be in one shard.
// The rules must have different names. It may be used several times.
func And(rule *limit.Rule, key KeyFunc) Option {
	return func(c *config) { c.limits = append(c.limits, limited{rule, key}) }
}

// DryRun refuses no call: see [limit.Rule.DryRun], and [Observe] for what would be refused.
// Calls without a key pass, too.
func DryRun() Option { return func(c *config) { c.dry = true } }

// FailOpen lets calls and messages pass while the limiter is unavailable, such as one of
// package remote while Redis is away, or while so many calls come at once that those of Redis time
// out: a flood can cause that. They are not limited then. They are told to [Observe] and
// logged all the same. A call that has ended by itself does not pass, nor does one after the
// limiter was closed. The default is to refuse with codes.Unavailable. With a limiter that
// answers from memory it has no effect.
func FailOpen() Option { return func(c *config) { c.open = true } }

// KeyErrorCode is the status of calls without a key: codes.InvalidArgument, the default, or
// codes.Unauthenticated.
func KeyErrorCode(code codes.Code) Option {
	return func(c *config) {
		c.keyCode = code
		if code != codes.InvalidArgument && code != codes.Unauthenticated {
			c.bad("KeyErrorCode is %v, must be InvalidArgument or Unauthenticated", code)
		}
	}
}

// ShowKey puts the key into refusals, as the subject of the QuotaFailure: up to 256 bytes,
// what is not UTF-8 being replaced. The default subject is the name of the policy. A key may
// be a secret, or name another customer.
func ShowKey() Option { return func(c *config) { c.showKey = true } }

// RefundOn hands a call's units back if it ends with one of these codes: Unavailable, for
// calls that did not happen, or OK, for a limit of failures such as wrong passwords. Not
// the units of messages (see [EachMessage]), nor those of a call whose handler panics. A
// client's stream has ended when RecvMsg says so. The limiter must have Refund. With one of
// package remote the end of the call waits for a round trip for each rule, also if the caller
// has gone; an error is logged, and the units stay used.
func RefundOn(on ...codes.Code) Option {
	return func(c *config) {
		if len(on) == 0 {
			c.bad("RefundOn: no codes")
		}
		if c.refunds == nil {
			c.refunds = map[codes.Code]bool{}
		}
		for _, code := range on {
			c.refunds[code] = true
			if code > codes.Unauthenticated {
				c.bad("RefundOn: %v is no code of gRPC", code)
			}
		}
	}
}

// EachMessage counts each message that a server receives on a stream, under rule and the
// key of the stream. cost says how many units a message takes, as [Cost] does; nil means
// 1. The handler's RecvMsg returns the refusal, then and from then on, and the stream
// ends with it unless the handler returns another error. Unary calls are not affected. The
// name of the rule must differ from those of the others.
func EachMessage(rule *limit.Rule, cost func(ctx context.Context, message any) int64) Option {
	return func(c *config) {
		c.message, c.perMsg = rule, cost
		c.servers = append(c.servers, "EachMessage")
		if !rule.Valid() {
			c.bad("EachMessage: the rule is nil or zero")
		}
	}
}

// Wait makes a client wait until the limiter admits a call, instead of refusing it. A call
// whose context would end before is refused at once, with codes.ResourceExhausted; one whose
// context ends while it waits, with codes.Canceled or codes.DeadlineExceeded. The limiter
// must have WaitN. It cannot be used with [And].
func Wait() Option {
	return func(c *config) {
		c.wait = true
		c.clients = append(c.clients, "Wait")
	}
}

// FollowRetryInfo makes a client heed servers: when a call fails with
// codes.ResourceExhausted or codes.Unavailable and a RetryInfo, the limiter admits no call of
// that key for as long as the server asks, give or take 10 ms, but at most for most. Then it
// goes on at the rate of the rule. It sets the counter, for all processes that share the
// limiter, before the call returns: one round trip to Redis, two with package remote, at most
// 1 s. An error of that is
// told to [Observe]. The rule must be a token bucket, as windows have no place for
// the future. With [And] the first rule is set. The limiter must have Peek and Set. most is
// above 0 and at most an hour.
func FollowRetryInfo(most time.Duration) Option {
	return func(c *config) {
		c.follow = most
		c.clients = append(c.clients, "FollowRetryInfo")
		if most <= 0 || most > maxPause {
			c.bad("FollowRetryInfo is %v, must be above 0 and at most %v", most, maxPause)
		}
	}
}

// Observe calls a function with each decision, for logs and metrics, before the call goes
// on. It must be safe for concurrent use and return soon.
func Observe(observer func(ctx context.Context, d Decision)) Option {
	return func(c *config) {
		c.observer = observer
		if observer == nil {
			c.bad("Observe: the function is nil")
		}
	}
}

// Logger gets a line about calls that cannot be decided: one in 10 s at level Warn if the key is
// missing, and one at Error of what is the program's own fault or an error of the limiter. There
// is none about a call that has ended by itself. Units that cannot be handed back have a line of
// their own, and so have costs that cannot be settled. Calls that could not be asked about are counted as Invalid in the figures of a
// limiter of package hybrid. Default: [slog.Default]; to be silent, give one
// with [slog.DiscardHandler].
func Logger(logger *slog.Logger) Option {
	return func(c *config) {
		c.logger = logger
		if logger == nil {
			c.bad("Logger: the logger is nil")
		}
	}
}

// configure applies the options and checks all that does not need the limiter.
func configure(client bool, rule *limit.Rule, key KeyFunc, opts []Option) *config {
	c := &config{limits: []limited{{rule, key}}, keyCode: codes.InvalidArgument}
	for i, o := range opts {
		if o == nil {
			c.bad("option %d is nil", i)
			continue
		}
		o(c)
	}
	misplaced, side := c.clients, "servers"
	if client {
		misplaced, side = c.servers, "clients"
	}
	for _, name := range misplaced {
		c.bad("%s is not for %s", name, side)
	}
	if c.wait && len(c.limits) > 1 {
		c.bad("Wait cannot be used with And: nobody can wait for several limits, all or none")
	}
	if c.follow != 0 && rule.Valid() && arith.Of(rule).Algorithm != arith.TokenBucket {
		c.bad("FollowRetryInfo needs a token bucket, not a %v", arith.Of(rule).Algorithm)
	}
	c.checkLimits()
	return c
}

func (c *config) checkLimits() {
	names := map[string]bool{}
	if c.message.Valid() {
		names[c.message.Name()] = true
	}
	for i, l := range c.limits {
		if l.key == nil {
			c.bad("limit %d: the key function is nil", i)
		}
		if !l.rule.Valid() {
			c.bad("limit %d: the rule is nil or zero", i)
			continue
		}
		if names[l.rule.Name()] {
			c.bad("limit %d: another rule has its name, %q", i, l.rule.Name())
		}
		names[l.rule.Name()] = true
	}
}

func (c *config) err() error { return errors.Join(c.problems...) }
