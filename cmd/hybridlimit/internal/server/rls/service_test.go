package rls

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoy "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
)

const ab = `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: free, rate_limit: {unlimited: true}}
`

// with sets the hits of a descriptor.
func with(desc *common.RateLimitDescriptor, hits uint64) *common.RateLimitDescriptor {
	desc.HitsAddend = wrapperspb.UInt64(hits)
	return desc
}

// own sets the limit that a descriptor brings with it.
func own(desc *common.RateLimitDescriptor, n uint32, unit envoy.RateLimitUnit) *common.RateLimitDescriptor {
	desc.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
	return desc
}

func TestARefusedRequestCountsNowhere(t *testing.T) {
	w := serve(t, ab, Options{})
	both := request("d", d("a=1"), d("none=1"), d("b=1"), d("free=1"))
	for i := range 3 {
		w.want(both, fmt.Sprintf("OK | OK 10/MINUTE %d 60s | OK 0 | OK 3/MINUTE %d 60s | OK 4294967295", 9-i, 2-i))
	}
	for range 5 {
		w.want(both, "OVER_LIMIT | OK 10/MINUTE 7 60s | OK 0 | OVER_LIMIT 3/MINUTE 0 60s | OK 4294967295")
	}
	if n := w.admits("d", "a=1"); n != 7 {
		t.Errorf("%d are left of the limit that did not refuse, want 7", n)
	}
	w.want(both, "OVER_LIMIT | OVER_LIMIT 10/MINUTE 0 60s | OK 0 | OVER_LIMIT 3/MINUTE 0 60s | OK 4294967295")
	if st := w.service.Stats(); st.Refused != 7 || st.Requests != 17 {
		t.Errorf("%+v", st)
	}
	// Whether the others admit it or not: nothing limits this descriptor.
	st := inside.Of(w.lim).Figures()
	if i := slices.IndexFunc(st.Rules, func(r inside.RuleFigures) bool { return r.Name == "d@free" }); i < 0 || st.Exempt == 0 || st.Rules[i].Exempt != st.Exempt {
		t.Errorf("%d exempt, %+v", st.Exempt, st.Rules)
	}
	was := st.Exempt
	w.ask(request("d", with(d("free=1"), 0)))
	if w.ask(request("d", d("free=2"))); inside.Of(w.lim).Figures().Exempt != was+1 {
		t.Errorf("%d exempt, want one more than %d", inside.Of(w.lim).Figures().Exempt, was)
	}
}

func TestHits(t *testing.T) {
	w := serve(t, ab, Options{})
	req := request("d", d("a=1"), with(d("b=1"), 2))
	req.HitsAddend = 4
	w.want(req, "OK | OK 10/MINUTE 6 60s | OK 3/MINUTE 1 60s")
	w.want(req, "OVER_LIMIT | OK 10/MINUTE 6 60s | OVER_LIMIT 3/MINUTE 1 60s")
	w.want(request("d", with(d("b=1"), 1)), "OK | OK 3/MINUTE 0 60s")
	// No hits at all ask whether anything is left.
	w.want(request("d", with(d("a=1"), 0)), "OK | OK 10/MINUTE 6 60s")
	w.want(request("d", with(d("b=1"), 0)), "OVER_LIMIT | OVER_LIMIT 3/MINUTE 0 60s")
	w.want(request("d", with(d("b=1"), 0), d("a=1")), "OVER_LIMIT | OVER_LIMIT 3/MINUTE 0 60s | OK 10/MINUTE 6 60s")
	w.want(request("d", with(d("a=1"), 11)), "OVER_LIMIT | OVER_LIMIT 10/MINUTE 6 60s") // never
	w.want(request("d", with(d("none=1"), 11)), "OK | OK 0")
}

func TestNegativeHitsAreHandedBack(t *testing.T) {
	w := serve(t, ab, Options{})
	if n := w.admits("d", "b=1"); n != 3 {
		t.Fatalf("%d, want 3", n)
	}
	back := with(d("b=1"), 2)
	back.IsNegativeHits = true
	w.want(request("d", back), "OK | OK 3/MINUTE 2 60s")
	w.want(request("d", back), "OK | OK 3/MINUTE 3 0s")
	w.want(request("d", back), "OK | OK 3/MINUTE 3 0s") // no more than was taken
	if n := w.admits("d", "b=1"); n != 3 {
		t.Errorf("%d, want 3", n)
	}
	// Together with one that is refused nothing is handed back.
	more := with(d("a=1"), 11)
	w.want(request("d", more, back), "OVER_LIMIT | OVER_LIMIT 10/MINUTE 10 0s | OK 3/MINUTE 0 60s")
}

// Envoy reports what a request has cost when it is over. It cannot be refused then.
func TestChargeRefused(t *testing.T) {
	for _, charge := range []bool{false, true} {
		w := serve(t, ab, Options{ChargeRefused: charge})
		look, report := request("d", with(d("a=1"), 0)), request("d", with(d("a=1"), 4))
		n := 0
		for ; n < 10 && w.ask(look).GetOverallCode() == ratelimit.RateLimitResponse_OK; n++ {
			w.ask(report)
		}
		if want := map[bool]int{false: 10, true: 3}[charge]; n != want {
			t.Errorf("ChargeRefused %v: %d requests that cost 4 each, of 10; want %d", charge, n, want)
		}
	}
	w := serve(t, ab, Options{ChargeRefused: true})
	w.ask(request("d", with(d("a=2"), 8)))
	w.want(request("d", with(d("a=2"), 40)), "OVER_LIMIT | OVER_LIMIT 10/MINUTE 0 60s")
	w.want(request("d", d("a=2")), "OVER_LIMIT | OVER_LIMIT 10/MINUTE 0 60s") // one hit is not charged
	if n := inside.Of(w.lim).Figures().ChargedUnits; n != 40 {
		t.Errorf("%d units charged, want the whole report", n)
	}
	w.want(request("d", d("a=1"), with(d("b=1"), 2)), "OK | OK 10/MINUTE 9 60s | OK 3/MINUTE 1 60s")
	w.want(request("d", d("a=1"), with(d("b=1"), 2)), "OVER_LIMIT | OK 10/MINUTE 8 60s | OVER_LIMIT 3/MINUTE 0 60s")
}

func TestLimitsThatRequestsBring(t *testing.T) {
	w := serve(t, ab, Options{})
	w.want(request("d", own(d("x=1"), 2, envoy.RateLimitUnit_HOUR)), "OK | OK 2/HOUR 1 3600s")
	w.want(request("d", own(d("x=1"), 2, envoy.RateLimitUnit_HOUR)), "OK | OK 2/HOUR 0 3600s")
	w.want(request("d", own(d("x=1"), 2, envoy.RateLimitUnit_HOUR)), "OVER_LIMIT | OVER_LIMIT 2/HOUR 0 3600s")
	w.want(request("d", own(d("x=1"), 3, envoy.RateLimitUnit_HOUR)), "OK | OK 3/HOUR 0 3600s") // goes on with what was used
	w.want(request("d", own(d("x=2"), 2, envoy.RateLimitUnit_HOUR)), "OK | OK 2/HOUR 1 3600s")
	w.want(request("d", own(d("x=1"), 2, envoy.RateLimitUnit_DAY)), "OK | OK 2/DAY 1 86400s")
	// It comes before the file's limit, and counts together with it in the same unit.
	w.want(request("d", d("b=1")), "OK | OK 3/MINUTE 2 60s")
	w.want(request("d", own(d("b=1"), 5, envoy.RateLimitUnit_MINUTE)), "OK | OK 5/MINUTE 3 60s")
	w.want(request("d", own(d("free=1"), 0, envoy.RateLimitUnit_MINUTE)), "OVER_LIMIT | OVER_LIMIT 0/MINUTE 0 0s")
	w.want(request("other", own(d("x=1"), 0, envoy.RateLimitUnit_HOUR)), "OK | OK 0")
	// 30 s is not a unit, but a number of them.
	half := own(d("y=1"), 2, envoy.RateLimitUnit_SECOND)
	half.Limit.UnitMultiplier = wrapperspb.UInt32(30)
	w.want(request("d", half), "OK | OK 2/SECOND 1 30s")
	w.want(request("d", half), "OK | OK 2/SECOND 0 30s")
	w.now.Advance(5 * time.Second)
	w.want(request("d", half), "OVER_LIMIT | OVER_LIMIT 2/SECOND 0 25s")
	if n := inside.Of(w.lim).Figures().Conflicts; n != 0 {
		t.Errorf("%d conflicts of rules", n)
	}
}

func TestABoundedNumberOfThemIsKept(t *testing.T) {
	w := serve(t, ab, Options{})
	for i := range maxOverrides + 10 {
		req := request("d", own(d(fmt.Sprintf("x%d=1", i)), uint32(i), envoy.RateLimitUnit_HOUR))
		if _, err := w.service.ShouldRateLimit(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(inside.Of(w.lim).Figures().Rules); n > 110 { // of these and of other limits
		t.Errorf("%d names have figures of their own", n)
	}
	if n := len(w.service.overrides.known); n != maxOverrides {
		t.Errorf("%d are kept, want %d", n, maxOverrides)
	}
	beyond := request("d", own(d("z=1"), 2_000_000, envoy.RateLimitUnit_HOUR))
	w.want(beyond, "OK | OK 2000000/HOUR 1999999 3600s")
	w.want(beyond, "OK | OK 2000000/HOUR 1999998 3600s")
}

func TestWhatCannotBeAnswered(t *testing.T) {
	w := serve(t, ab, Options{})
	long := d("x=1")
	long.Entries[0].Key = strings.Repeat("k", 300)
	times := own(d("x=1"), 1, envoy.RateLimitUnit_YEAR)
	times.Limit.UnitMultiplier = wrapperspb.UInt32(101)
	none := own(d("x=1"), 1, envoy.RateLimitUnit_YEAR)
	none.Limit.UnitMultiplier = wrapperspb.UInt32(0)
	many := request("d")
	for range maxDescriptors + 1 {
		many.Descriptors = append(many.Descriptors, d("a=1"))
	}
	bad := map[string]*ratelimit.RateLimitRequest{
		"domain":          request("", d("a=1")),
		"a descriptor":    request("d"),
		"too many":        many,
		"hits_addend":     request("d", with(d("a=1"), 1<<63)),
		"unit must be":    request("d", own(d("a=1"), 1, envoy.RateLimitUnit_UNKNOWN)),
		"descriptor 1":    request("d", d("a=1"), own(d("a=1"), 1, 99)),
		"too long":        request("d", own(long, 1, envoy.RateLimitUnit_HOUR)),
		"unit_multiplier": request("d", times),
		"at least 1":      request("d", none),
	}
	for word, req := range bad {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := w.client.ShouldRateLimit(ctx, req)
		cancel()
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), word) {
			t.Errorf("%v, want %v with %q", err, codes.InvalidArgument, word)
		}
	}
	// Messages with nil where Go allows it, which a wire cannot have.
	if _, err := w.service.ShouldRateLimit(t.Context(), nil); status.Code(err) != codes.InvalidArgument {
		t.Errorf("nil: %v", err)
	}
	if _, err := w.service.ShouldRateLimit(t.Context(), request("d", nil, &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{nil}})); err != nil {
		t.Errorf("nil descriptors: %v", err)
	}
	if st := w.service.Stats(); st.Invalid != uint64(len(bad))+1 || st.Requests != 1 {
		t.Errorf("%+v", st)
	}
	w.want(request("d", d("a=1")), "OK | OK 10/MINUTE 9 60s") // nothing was counted
}

func TestShadow(t *testing.T) {
	w := serve(t, ab, Options{Shadow: true})
	for range 3 {
		w.ask(request("d", d("b=1")))
	}
	w.want(request("d", d("b=1")), "OK | OVER_LIMIT 3/MINUTE 0 60s")
	if st := w.service.Stats(); st.Shadowed != 1 || st.Refused != 0 || st.Requests != 4 {
		t.Errorf("%+v", st)
	}
}

func TestHeaders(t *testing.T) {
	w := serve(t, ab, Options{Headers: true})
	text := func(req *ratelimit.RateLimitRequest) (s string) {
		for _, h := range w.ask(req).GetResponseHeadersToAdd() {
			s += h.GetKey() + ": " + h.GetValue() + "; "
		}
		return s
	}
	for _, c := range []struct {
		req  *ratelimit.RateLimitRequest
		want string
	}{
		{request("d", d("none=1"), d("free=1")), ""},
		{request("d", d("a=1"), d("b=1")), "RateLimit-Limit: 3; RateLimit-Remaining: 2; RateLimit-Reset: 60; "},
		{request("d", d("a=1")), "RateLimit-Limit: 10; RateLimit-Remaining: 8; RateLimit-Reset: 60; "},
		{request("d", with(d("a=1"), 9), d("b=1")), "RateLimit-Limit: 10; RateLimit-Remaining: 8; RateLimit-Reset: 60; Retry-After: 60; "},
		{request("d", with(d("a=1"), 11), d("b=1")), "RateLimit-Limit: 10; RateLimit-Remaining: 8; RateLimit-Reset: 60; "},
	} {
		if got := text(c.req); got != c.want {
			t.Errorf("%v: %s, want %s", c.req, got, c.want)
		}
	}
	w = serve(t, ab, Options{})
	if got := text(request("d", d("a=1"))); got != "" {
		t.Errorf("without being asked: %s", got)
	}
}

// Who waits for as long as Retry-After says, in whole seconds, is admitted then.
func TestRetryAfterIsEnough(t *testing.T) {
	for _, wait := range []time.Duration{time.Millisecond, 500 * time.Millisecond, 1500 * time.Millisecond} {
		w := serve(t, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: minute, requests_per_unit: 1}}]\n", Options{Headers: true})
		req := request("d", d("a=1"))
		w.want(req, "OK | OK 1/MINUTE 0 60s")
		w.now.Advance(time.Minute - wait)
		said := ""
		for _, h := range w.ask(req).GetResponseHeadersToAdd() {
			if h.GetKey() == "Retry-After" {
				said = h.GetValue()
			}
		}
		seconds, err := strconv.Atoi(said)
		if err != nil || time.Duration(seconds)*time.Second >= wait+time.Second {
			t.Errorf("%v before it is admitted: Retry-After is %q", wait, said)
		}
		w.now.Advance(time.Duration(seconds) * time.Second)
		w.want(req, "OK | OK 1/MINUTE 0 60s")
	}
}

// What is only looked at is fetched from the other servers.
func TestLooksAreTold(t *testing.T) {
	var told []string // before the answer
	w := serve(t, ab, Options{Look: func(key string, rule *limit.Rule) { told = append(told, rule.Name()) }})
	back := with(d("b=1"), 1)
	back.IsNegativeHits = true
	w.ask(request("d", with(d("a=1"), 0), d("b=1"), with(d("none=1"), 0), with(d("free=1"), 0)))
	w.ask(request("d", back))
	if want := []string{"d@a/minute"}; !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q", told, want)
	}
}

// A unit of a limit in a request is as long as that of the rules file: else both would not
// count together.
func TestUnitsAreThoseOfTheFile(t *testing.T) {
	for unit := range durations {
		name := strings.ToLower(unit.String())
		w := serve(t, "domain: d\ndescriptors: [{key: a, rate_limit: {name: n, unit: "+name+", requests_per_unit: 3}}]\n", Options{})
		file, err := w.service.find(w.service.o.Rules(), "d", []rules.Entry{{Key: "a", Value: "1"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		brought, err := w.service.find(w.service.o.Rules(), "d", []rules.Entry{{Key: "a", Value: "1"}}, own(d("a=1"), 3, unit).GetLimit())
		if err != nil || brought.Rule.String() != file.Rule.String() || brought.Unit != file.Unit {
			t.Errorf("%s: %v (%v), want %v", name, brought, err, file.Rule)
		}
		l := w.ask(request("d", d("a=1"))).GetStatuses()[0].GetCurrentLimit()
		if l.GetUnit().String() != unit.String() || l.GetName() != "n" {
			t.Errorf("%s is named %v", name, l)
		}
	}
	if n := len(envoy.RateLimitUnit_name) - 1; len(durations) != n { // the first one is UNKNOWN
		t.Errorf("%d units are known, and Envoy has %d", len(durations), n)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("no error without a limiter")
	}
}

// A descriptor with several limits answers for the tightest, and counts under none if one refuses.
func TestSeveralLimits(t *testing.T) {
	w := serve(t, "domain: d\ndescriptors:\n  - {key: a, rate_limit: {limits: \"3/minute, 4/day, 100/90s\"}}\n  - {key: b, rate_limit: {limits: 5/hour}}\n", Options{Headers: true})
	for i := range 3 {
		w.want(request("d", d("a=1")), fmt.Sprintf("OK | OK 3/MINUTE %d 60s", 2-i))
	}
	w.want(request("d", d("a=1")), "OVER_LIMIT | OVER_LIMIT 3/MINUTE 0 60s")
	w.now.Advance(2 * time.Minute)
	w.want(request("d", d("a=1")), "OK | OK 4/DAY 0 86400s")
	w.want(request("d", d("a=1"), d("b=1")), "OVER_LIMIT | OVER_LIMIT 4/DAY 0 86280.000000001s | OK 5/HOUR 5 0s")
	w.want(request("d", d("b=1")), "OK | OK 5/HOUR 4 3600s")
}

// The answer is about the limit that decides, also if another one has the same number of units; a
// bucket is told by its rate.
func TestWhichOfSeveralLimits(t *testing.T) {
	w := serve(t, "domain: d\ndescriptors:\n  - {key: a, rate_limit: {limits: \"5/s, 5/m\"}}\n  - {key: b, rate_limit: {limits: 10/s burst 20}}\n", Options{})
	w.want(request("d", with(d("a=1"), 5)), "OK | OK 5/SECOND 0 1s")
	w.now.Advance(10 * time.Second)
	w.want(request("d", d("a=1")), "OVER_LIMIT | OVER_LIMIT 5/MINUTE 0 50s")
	w.want(request("d", with(d("a=1"), 0)), "OVER_LIMIT | OVER_LIMIT 5/MINUTE 0 50s") // a look
	w.want(request("d", with(d("b=1"), 5)), "OK | OK 10/SECOND 15 0.5s")
}

// What a trial would have refused is charged as well, or the trial would show too little.
func TestChargeRefusedInShadowMode(t *testing.T) {
	w := serve(t, "domain: d\ndescriptors:\n  - {key: a, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 3}}\n", Options{ChargeRefused: true})
	w.ask(request("d", with(d("a=1"), 2)))
	w.want(request("d", with(d("a=1"), 50)), "OK | OK 3/MINUTE 0 60s")
	if s := inside.Of(w.lim).Figures(); s.ChargedUnits != 50 || s.WouldRefuse != 1 {
		t.Errorf("%+v", s)
	}
}
