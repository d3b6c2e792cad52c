package counter

import (
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/limit"
)

// Who waits behind others for a quota waits for whole periods, each as long as it is.
func TestEstimateByTheCalendar(t *testing.T) {
	r := limit.Must(limit.Quota("q", 10, limit.Calendar{Unit: limit.Month}))
	at := func(m time.Month, d int) int64 { return time.Date(2026, m, d, 0, 0, 0, 0, time.UTC).UnixNano() }
	now := at(time.January, 10)
	c := NewAlone("k", r, nil, now)
	for range 10 {
		c.allow(now, 1, r)
	}
	for ahead, until := range map[int64]int64{0: at(time.February, 1), 9: at(time.February, 1), 10: at(time.March, 1), 25: at(time.April, 1)} {
		if wait, ok := c.Estimate(now, ahead, 1, r); !ok || now+wait != until {
			t.Errorf("behind %d: until %v, want %v", ahead, time.Unix(0, now+wait).UTC(), time.Unix(0, until).UTC())
		}
	}
}
