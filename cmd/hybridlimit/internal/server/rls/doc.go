// Package rls is Envoy's rate limit service, envoy.service.ratelimit.v3.RateLimitService,
// over a limiter that answers from memory.
//
// Domains, descriptors and the limits that belong to them are those of a rules file in the
// format of envoyproxy/ratelimit. Limits are sliding windows rather than windows that are
// aligned to the clock.
//
// Several descriptors of one request are decided together: either all of them are counted, or
// none is. A request that is refused does not happen, so it should not use up the limits that
// would have admitted it. See [Options.ChargeRefused].
package rls
