package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// laterFaults came after the others. They are drawn by themselves, in every second
// seed: the others play as they did before there were these.
var laterFaults = []fault{
	{"small rollback", func(s *sim, p *simPlan, rng *rand.Rand) {
		v, d := s.servers[rng.IntN(len(s.servers))], time.Duration(ms+rng.Int64N(200*ms))
		old := v.save()
		s.checks(d, 4*p.perSecond)
		p.say("server%d loses what it was told in the last %v", v.id, d)
		v.rollback(old)
	}},
	{"second loss", func(s *sim, p *simPlan, rng *rand.Rand) {
		v, first, second := s.servers[rng.IntN(len(s.servers))], rng.IntN(3), rng.IntN(3)
		// Nodes notice with their next batch or heartbeat, and need a while to report everything.
		d := rng.Int64N(2*int64(s.opt.HeartbeatInterval) + 300*ms)
		old := v.save()
		s.checks(time.Duration(rng.Int64N(300*ms)), 2*p.perSecond)
		p.say("%s, and after %v %s", v.loseAgain(p, rng, first, old), time.Duration(d), [...]string{"all", "what came after a snapshot", "a key"}[second])
		s.after(d, func() {
			if !s.healed {
				v.loseAgain(p, rng, second, old)
			}
		})
	}},
	splitFault,
}

// drawLater draws the later kinds of faults.
func drawLater(p *simPlan, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0x1a7e))
	for _, f := range laterFaults {
		if rng.IntN(2) == 0 && seed%2 == 0 {
			p.kinds = append(p.kinds, f.kind)
		}
	}
}

// loseAgain loses everything, what came after a snapshot, or one key.
func (v *simServer) loseAgain(p *simPlan, rng *rand.Rand, how int, old *savedServer) string {
	switch how {
	case 0:
		v.wipe()
		return fmt.Sprintf("server%d loses everything", v.id)
	case 1:
		v.rollback(old)
		return fmt.Sprintf("server%d falls back a little", v.id)
	}
	v, key := v.s.drawKey(p, rng)
	v.forget(key)
	return fmt.Sprintf("server%d loses %s", v.id, key)
}
