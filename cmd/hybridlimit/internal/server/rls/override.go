package rls

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	envoy "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// override is a limit that a request brings with it.
type override struct {
	name  string // of the rule
	limit uint32
	times uint32 // units of time
	unit  envoy.RateLimitUnit
}

// overrides is the rules of limits that requests have brought.
type overrides struct {
	mu    sync.RWMutex
	known map[override]*rules.Descriptor
}

// maxOverrides is for how many such limits a rule is kept. Further ones are built for each
// request: that takes a microsecond or two more.
const maxOverrides = 4096

// durations are as long as the rules file has them.
var durations = map[envoy.RateLimitUnit]time.Duration{
	envoy.RateLimitUnit_SECOND: time.Second,
	envoy.RateLimitUnit_MINUTE: time.Minute,
	envoy.RateLimitUnit_HOUR:   time.Hour,
	envoy.RateLimitUnit_DAY:    24 * time.Hour,
	envoy.RateLimitUnit_MONTH:  30 * 24 * time.Hour,
	envoy.RateLimitUnit_YEAR:   365 * 24 * time.Hour,
}

// find returns the limit of a descriptor, nil if there is none. A limit in the request comes
// before those of the rules file, but only in a domain that the file has.
func (s *Service) find(set *rules.Set, domain string, entries []rules.Entry, own *common.RateLimitDescriptor_RateLimitOverride) (*rules.Descriptor, error) {
	if own == nil || !set.HasDomain(domain) || len(entries) == 0 {
		return set.Descriptor(domain, entries), nil
	}
	unit := own.GetUnit()
	if durations[unit] == 0 {
		return nil, errors.New("unit must be SECOND, MINUTE, HOUR, DAY, MONTH or YEAR")
	}
	o := override{name: nameOf(domain, entries, unit), limit: own.GetRequestsPerUnit(), times: 1, unit: unit}
	if m := own.GetUnitMultiplier(); m != nil {
		if o.times = m.GetValue(); o.times == 0 {
			return nil, errors.New("unit_multiplier must be at least 1")
		}
	}
	return s.overrides.rule(o)
}

// nameOf returns the name under which the rules file has such a limit, so that both count
// together.
func nameOf(domain string, entries []rules.Entry, unit envoy.RateLimitUnit) string {
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Key
	}
	return domain + "@" + strings.Join(keys, ".") + "/" + strings.ToLower(unit.String())
}

// rule returns the limit for an override: the same pointer each time, for the first
// maxOverrides.
func (os *overrides) rule(o override) (*rules.Descriptor, error) {
	os.mu.RLock()
	d := os.known[o]
	os.mu.RUnlock()
	if d != nil {
		return d, nil
	}
	d, err := o.build()
	if err != nil {
		return nil, err
	}
	os.mu.Lock()
	defer os.mu.Unlock()
	if first := os.known[o]; first != nil {
		return first, nil
	}
	if len(os.known) < maxOverrides {
		os.known[o] = d
	}
	return d, nil
}

func (o override) build() (*rules.Descriptor, error) {
	name := o.name
	if o.times > 1 {
		name += fmt.Sprintf("*%d", o.times)
	}
	if len(name) > arith.MaxNameBytes {
		return nil, fmt.Errorf("the domain and the keys are too long: %d bytes with the unit, at most %d are allowed", len(name), arith.MaxNameBytes)
	}
	per := durations[o.unit]
	if int64(o.times) > int64(arith.MaxWindow/per) {
		return nil, fmt.Errorf("unit_multiplier is %d, but a window may be %v at most", o.times, arith.MaxWindow)
	}
	rule, err := limit.SlidingWindow(name, int64(o.limit), time.Duration(o.times)*per)
	if err != nil {
		return nil, err
	}
	arith.Of(rule).MadeUp = true
	return &rules.Descriptor{Rule: rule, Path: name, Unit: strings.ToLower(o.unit.String()), RequestsPerUnit: o.limit}, nil
}
