package redistest

// LateDial is what a test may leave running for a second: after as many failed
// dials as a pool is large go-redis dials once a second, until up to a second
// after its client was closed. Every package whose tests make a client of a
// server that may be away passes it to goleak.IgnoreAnyFunction.
const LateDial = "github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"
