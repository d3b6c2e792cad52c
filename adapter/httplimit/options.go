package httplimit

import (
	"log/slog"
	"net/http"
	"net/netip"
	"strings"

	"github.com/hybridlimit/hybridlimit/adapter/internal/undecided"
	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
)

// Limit is one limit of those that a request must keep. Key and one of Rule and RuleFor are
// required.
type Limit struct {
	Rule *limit.Rule
	// RuleFor chooses the rule by the request, such as the plan of a customer. To limit a
	// request by this Limit is the default: return [limit.Unlimited] not to. A nil rule, as a
	// map has for an unknown plan, is an error, see OnError of [Options]: return the rule of
	// your smallest plan instead. Build rules once: one that is built anew for each request
	// is slower.
	RuleFor func(r *http.Request) *limit.Rule
	Key     KeyFunc
	// Except has the requests that this limit treats otherwise. They come before RuleFor. Default: none.
	Except []Exception
	// Cost is how many units a request takes. Default 1. A cost of 0 is 1, as that of a
	// [limit.Check]; a negative one, such as the ContentLength of a body of unknown
	// length, is an error, see OnError.
	Cost func(r *http.Request) int64
	// Settle is for a cost that is known only afterwards, such as the tokens or the bytes of an
	// answer. It returns how many units the request has really cost: what Cost has said is an
	// estimate then, and the difference is charged, whether it fits or not, or handed back. A cost
	// of 0 is 0: all is handed back. A negative one is an error in the log, and the estimate stays.
	//
	// It is called once for each request that this limit has admitted, when the handler has
	// returned or has panicked, also if the client has gone; not for an answer that
	// RefundOn of [Options] hands back, nor for what a dry run would have refused. r is the request
	// as the handler got it. What the client was told is left is by the estimate. The limiter must
	// have Charge. With one that asks Redis the end of the response waits for a round trip.
	Settle func(r *http.Request, a Answer) int64
	// Policy is what clients are told that the limit is called. Default: the name of the
	// rule. It is printable ASCII: the draft allows nothing else.
	Policy string
}

// Headers is which fields of a response tell the client what is left.
type Headers uint8

// The choices. Retry-After is independent of them.
const (
	// DraftHeaders writes RateLimit and RateLimit-Policy of
	// draft-ietf-httpapi-ratelimit-headers-11, of the limit that decided and of all limits.
	// Several middlewares add a line each.
	DraftHeaders Headers = iota
	// XRateLimitHeaders writes X-RateLimit-Limit, -Remaining and -Reset of the limit that
	// decided. Reset is in Unix seconds. Of several middlewares the innermost is heard.
	XRateLimitHeaders
	// NoHeaders writes none.
	NoHeaders
)

// Options says how requests are answered. The zero value is ready to use.
type Options struct {
	// Headers is which fields tell the client what is left. Default [DraftHeaders].
	Headers Headers
	// RefundOn says for which status codes of a response the units are handed back, such as
	// 304, or those from 500 on. A handler that panics before it has answered counts as
	// 500. What the client was told is left does not contain what is handed back. With a
	// limiter that asks Redis the end of the response waits for a round trip for each limit.
	// Only with RefundOn or Settle of a [Limit] handlers get another ResponseWriter. It can do what
	// the server's can, and has Unwrap for http.ResponseController.
	// Default: none.
	RefundOn func(status int) bool
	// Refused answers a request above the limit. Retry-After and what Headers asks for are
	// set already. Default: 429 and a problem document (RFC 9457) of the draft's type
	// quota-exceeded, or temporary-reduced-capacity while the limiter is degraded.
	Refused func(w http.ResponseWriter, r *http.Request, d Decision)
	// OnError answers a request that cannot be decided: its key function has returned an
	// error or no key, its rule is nil, its cost negative, or the limiter has returned an
	// error. To let it pass call next. To fail open while Redis is away, do so if err is
	// [ErrUnavailable]: nothing is limited then. Default: 400 for an error of the key
	// function, 500 for what is the service's own fault, 503 for an error of the limiter.
	OnError func(w http.ResponseWriter, r *http.Request, next http.Handler, err error)
	// Logger gets a line about requests that cannot be decided: one in 10 s at level Warn if
	// the key is missing, and one at Error of what is the service's own fault or an error of
	// the limiter. There is none about a client that has gone meanwhile. Units that cannot be
	// handed back have a line of their own, and so have costs that cannot be settled. Requests that could not be asked about are counted
	// as Invalid in the figures of a limiter of package hybrid. Default: [slog.Default]; to be
	// silent, give one with [slog.DiscardHandler].
	Logger *slog.Logger
	// PassPreflights lets CORS preflights pass, not counted and not decided: OPTIONS with
	// Origin and Access-Control-Request-Method. A browser sends them without what keys are
	// made of. It is better to put the limiter behind the CORS middleware, which answers
	// them itself, and whose fields a refusal needs. Anybody can send a preflight, so next
	// should answer it at little cost. Default: they are requests like any other.
	PassPreflights bool
	// Client says from which address a request comes, for Ranges of an [Exception]: give it what
	// [ClientAddr] returns. Default: none, since without a word about proxies no address is safe.
	Client func(r *http.Request) netip.Addr
	// OnDecision is called with each decision before the request is answered: for logs,
	// metrics, and to see what a dry run would refuse. It runs on the request's goroutine.
	OnDecision func(r *http.Request, d Decision)
	// Clock is for X-RateLimit-Reset, which is a time, and for Took of [Answer]. Default
	// [clock.System].
	Clock clock.Clock
}

// Decision is what was decided about one request. As JSON and in logs it is without Checks: their keys
// come from clients.
type Decision struct {
	// AllResult has Allowed, Remaining, RetryAfter and the like, of the check that decided;
	// By is its index in Checks. WouldRefuse tells that a dry run would have refused. With
	// an Err it is a refusal.
	limit.AllResult
	// Checks is what was asked of the limiter. There are none if the request is unlimited or
	// could not be decided.
	Checks []limit.Check
	// Policy is what clients are told that the limit is called which has decided.
	Policy string
	// Exempt says why a limit did not count the request, the first that did not: "route GET /health",
	// "address in 10.0.0.0/8", "key", or "rule" if its RuleFor returned [limit.Unlimited]. "": all
	// limits were asked. Limiters of package hybrid count each such limit as exempt, under
	// the name of its Rule, or with RuleFor its Policy.
	Exempt string
	// Err says why the request could not be decided; nil if it was.
	Err error
}

// config is what all handlers of a middleware share. It does not change.
type config struct {
	lim    limit.ContextLimiter
	o      Options
	limits []*boundLimit
	log    *undecided.Log // changes by itself
	kept   *undecided.Log // the same, about units that could not be handed back
	owed   *undecided.Log // the same, about costs that could not be settled
}

// boundLimit is a limit of a middleware.
type boundLimit struct {
	Limit
	item   string      // of RateLimit-Policy; "" if the rule depends on the request
	except *exceptions // nil: there are none
}

// partName returns what clients are told that a part of a combined rule is called; that is name for a
// rule that is its only part.
func (l *boundLimit) partName(rule, part *limit.Rule) string {
	switch name := l.name(rule); {
	case part == rule || !part.Valid():
		return name
	case l.Policy != "":
		return name + strings.TrimPrefix(part.Name(), rule.Name())
	}
	return part.Name()
}

// name returns what clients are told that the limit is called.
func (l *boundLimit) name(rule *limit.Rule) string {
	if l.Policy == "" && rule.Valid() {
		return rule.Name()
	}
	return l.Policy
}
