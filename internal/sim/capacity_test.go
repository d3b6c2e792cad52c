package sim

import (
	"math/rand/v2"
	"testing"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
	"github.com/hybridlimit/hybridlimit/internal/report"
)

// capacity is what a server's work takes it, in ns of its time. It does one script after
// the other, so that more work than it has time for makes a queue.
type capacity struct {
	call   int64 // a script, before it does anything
	op     int64 // one operation
	bucket int64 // a bucket of a window that is read, and one that is written
	byte   int64 // a byte that it is sent
	slow   int64 // and so many times all of that
}

// usual is about what a redis-server takes that has a processor to itself.
func usual() *capacity {
	return &capacity{call: 20_000, op: 4_000, bucket: 350, byte: 1, slow: 1}
}

// perScript takes so long for each script, whatever it does.
func perScript(ns int64) *capacity { return &capacity{call: ns, slow: 1} }

// batch returns what a batch takes that was answered so.
func (c *capacity) batch(b *redisstore.Batch, r redisstore.Reply) int64 {
	ns := c.call
	for i := range r.States {
		op, held := &b.Ops[i], int64(len(r.States[i].Buckets))
		ns += c.op + held*c.bucket + c.byte*opBytes(op)
		if r.Verdict == redisstore.VerdictApplied && (op.Units > 0 || op.Restore || takesOff(op)) {
			ns += held * c.bucket
		}
	}
	return ns
}

// opBytes returns about how long an operation is on the wire.
func opBytes(op *report.Report) int64 {
	return int64(len(op.Key) + 60 + 24*(len(op.Buckets)+len(op.Known.Buckets)+len(op.BackBuckets)))
}

// takes adds to the time that the script takes which runs now.
func (v *simServer) takes(ns func(*capacity) int64) {
	if v.capacity != nil {
		v.spent += ns(v.capacity) * v.capacity.slow
	}
}

// job is the scripts that a server was sent in one pipeline.
type job struct {
	steps, next  int
	run          func(i int) // executes one of them
	copy         bool        // it is a stray copy
	done, broken func()      // all were executed; the connection has broken before
	came         int64
	epoch        int
}

// work takes a job on. A server of boundless capacity does it at once.
func (v *simServer) work(j *job) {
	j.came, j.epoch = v.s.now, v.epoch
	v.exchanges++
	if v.capacity == nil && len(v.line) == 0 {
		for j.next < j.steps {
			v.step(j)
		}
		j.done()
		return
	}
	v.line = append(v.line, j)
	if !v.serving {
		v.serve()
	}
}

// step executes the next script of a job.
func (v *simServer) step(j *job) {
	v.spent = 0
	v.copies = j.copy
	j.run(j.next)
	v.copies = false
	j.next++
	v.scripts++
	v.busy += v.spent
}

// serve executes what waits, each script in its time. The client may have given up by
// then: the server does not know.
func (v *simServer) serve() {
	v.serving = false
	for len(v.line) > 0 && !v.frozen {
		j := v.line[0]
		switch {
		case v.killed || v.s.down || j.epoch != v.epoch:
			v.line = v.line[1:]
			j.broken()
		case j.next == j.steps:
			v.line = v.line[1:]
			v.stay = max(v.stay, v.s.now-j.came)
			j.done()
		default:
			v.step(j)
			v.serving = true
			v.s.after(v.spent, v.serve)
			return
		}
	}
}

// stays returns the longest that an exchange has spent at a server since all has healed.
func (s *sim) stays() (most int64) {
	for _, v := range s.servers {
		most = max(most, v.stay)
		for _, j := range v.line {
			most = max(most, s.now-j.came)
		}
	}
	return most
}

// drawCapacity gives the servers of a seed a modest speed. The nodes of a seed rarely have
// enough for them to do, but exchanges wait for each other.
func drawCapacity(s *sim) {
	rng := rand.New(rand.NewPCG(s.seed, 0xca9ac17))
	s.plan.slow = true // until all has healed, when the oracle goes by how long exchanges really stay
	for _, v := range s.servers {
		v.capacity = usual()
		v.capacity.slow = 1 + rng.Int64N(1+rng.Int64N(20))
		s.plan.say("server%d takes %d times what is usual", v.id, v.capacity.slow)
	}
}

// TestSimCapacity plays seeds on servers whose scripts take time.
func TestSimCapacity(t *testing.T) {
	simSeeds(t, nil, seedRange(*simSeed, max(*simRuns/5, 8)), drawCapacity)
}
