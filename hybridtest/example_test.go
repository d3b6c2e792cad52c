package hybridtest_test

import (
	"fmt"
	"time"

	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/limit"
)

func ExampleNew() {
	t := new(fake) // in a test: its *testing.T
	t.run(func() {
		h := hybridtest.New(t, hybridtest.Options{Limiters: 2})
		mails := limit.Must(limit.TokenBucket("mails", 1, time.Minute, 4))

		fmt.Println("taken:", h.Limiters[0].AllowN("alice", mails, 4))
		h.Preload([]string{"alice"}, mails)
		fmt.Println("on the other:", h.Limiters[1].Allow("alice", mails))

		h.Clock.Advance(time.Minute)
		fmt.Println("a minute later:", h.Limiters[1].Allow("alice", mails))

		h.CutOff()
		fmt.Println("in an outage:", h.Limiter.Take("bob", mails, 1).Source)
		h.Heal()
		fmt.Println("after it:", h.Limiter.Take("bob", mails, 1).Source)
	})
	// Output:
	// taken: true
	// on the other: false
	// a minute later: true
	// in an outage: degraded
	// after it: synced
}
