// Command quota gives customers a quota for each month of theirs, from the day on which they have come and in
// their time zone: go run ./examples/quota
package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"time"
	_ "time/tzdata" // also where the system has no time zones

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

// customer is who has a quota.
type customer struct {
	name string
	zone string
	day  int // of the month on which the contract began
}

var customers = []customer{{"berlin", "Europe/Berlin", 1}, {"tokyo", "Asia/Tokyo", 1}, {"new york", "America/New_York", 31}}

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run lets each customer ask once every six hours, twice as often as 60 a month. hybrid.New with Redis takes
// the same rules; here the clock is one that can be moved.
func run(out io.Writer) error {
	now := clock.NewManual(time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC))
	lim, err := local.New(local.Options{Clock: now})
	if err != nil {
		return err
	}
	defer lim.Close()
	rules, zones := map[string]*limit.Rule{}, map[string]*time.Location{}
	for _, c := range customers {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			return err
		}
		zones[c.name] = zone
		// The name says who counts alike: rules with other periods need other names.
		rules[c.name] = limit.Must(limit.Quota("requests, "+c.name, 60, limit.Calendar{Unit: limit.Month, Zone: zone, First: c.day}))
	}
	const step = 6 * time.Hour
	refused := map[string]bool{}
	for range 100 * 24 * time.Hour / step {
		for _, c := range customers {
			rule := rules[c.name]
			res := lim.Take(c.name, rule, 1)
			if res.Allowed || refused[c.name] { // say it once
				refused[c.name] = !res.Allowed
				continue
			}
			refused[c.name] = true
			again := time.Unix(0, int64(now.Now())).Add(res.RetryAfter).In(zones[c.name])
			fmt.Fprintf(out, "%-8s has used its quota up, and has a new one on %s\n", c.name, again.Format("Monday, 2 January 15:04 -0700"))
		}
		now.Advance(step)
	}
	return nil
}
