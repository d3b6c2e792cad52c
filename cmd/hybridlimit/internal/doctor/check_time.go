package doctor

import (
	"fmt"
	"slices"
	"time"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/screen"
)

const (
	// clockOff is how far two clocks may be apart, besides what cannot be told.
	clockOff = 2 * time.Second
	// clockJump is how far a clock may jump.
	clockJump = 100 * time.Millisecond
	// recent is for how long something slow is worth a word.
	recent = time.Hour
)

// beside returns by how much a reading is outside of the two times between which it was
// taken: below 0 if it is before them.
func beside(server, before, after time.Time) time.Duration {
	switch {
	case server.Before(before):
		return server.Sub(before)
	case server.After(after):
		return server.Sub(after)
	}
	return 0
}

func checkClock(f *facts, _ Options) answer {
	if len(f.times) == 0 {
		return cannotTell("TIME is not answered")
	}
	off := time.Duration(0) // the least that fits
	for i, r := range f.times {
		// Without their monotonic part, as the server's has none.
		if d := beside(r.server, r.before.Round(0), r.after.Round(0)); i == 0 || d.Abs() < off.Abs() {
			off = d
		}
	}
	if off.Abs() <= clockOff {
		return fine
	}
	which := "ahead of"
	if off < 0 {
		which = "behind"
	}
	return wrong(fmt.Sprintf("The clock of Redis is %s %s that of this machine.", screen.Wait(off.Abs()), which), "Let chrony or systemd-timesyncd set the clocks of both machines.")
}

// checkJumps looks whether two readings are as far apart as the time between them.
func checkJumps(f *facts, _ Options) answer {
	if len(f.times) < 2 {
		return cannotTell("TIME is not answered")
	}
	worst := time.Duration(0)
	for i := 1; i < len(f.times); i++ {
		a, b := f.times[i-1], f.times[i]
		passed := b.server.Sub(a.server)
		jump := time.Duration(0)
		if least := b.before.Sub(a.after); passed < least {
			jump = passed - least
		} else if most := b.after.Sub(a.before); passed > most {
			jump = passed - most
		}
		if jump.Abs() > worst.Abs() {
			worst = jump
		}
	}
	if worst.Abs() <= clockJump {
		return fine
	}
	which := "ahead"
	if worst < 0 {
		which = "back"
	}
	return wrong(fmt.Sprintf("The clock of Redis has jumped %s by %s while it was looked at.", which, screen.Wait(worst.Abs())),
		"Let one program set that clock, slowly: chrony with makestep only at the start.")
}

func checkLatency(f *facts, o Options) answer {
	if len(f.times) == 0 {
		return cannotTell("TIME is not answered")
	}
	var list []time.Duration
	for _, r := range f.times[min(1, len(f.times)-1):] { // to connect takes longer: without the first
		list = append(list, r.after.Sub(r.before))
	}
	slices.Sort(list)
	middle := list[len(list)/2]
	if middle < o.SlowTrip {
		return fine
	}
	return wrong(fmt.Sprintf("A round trip takes %s, at most %s (middle and most of %d).", screen.Wait(middle), screen.Wait(list[len(list)-1]), len(list)),
		"Bring Redis nearer, or relieve it.", "Raise CommandTimeout to four times that or more.")
}

// now is the server's time. It must have said it.
func (f *facts) now() time.Time { return f.times[len(f.times)-1].server }

func checkSlow(f *facts, o Options) answer {
	switch least, ok := f.settingNumber("slowlog-log-slower-than"); {
	case len(f.times) == 0:
		return cannotTell("TIME is not answered")
	case f.slowErr != nil:
		return cannotTell("SLOWLOG is not answered" + because(f.slowErr))
	case ok && (least < 0 || time.Duration(least)*time.Microsecond > o.SlowCommand):
		return cannotTell(fmt.Sprintf("slowlog-log-slower-than is %d: nothing is written down", least))
	}
	n, worst, name := 0, time.Duration(0), ""
	for _, e := range f.slow {
		if e.Duration < o.SlowCommand || f.now().Sub(e.Time) > recent {
			continue
		}
		if n++; e.Duration > worst && len(e.Args) > 0 {
			worst, name = e.Duration, e.Args[0]
		}
	}
	if n == 0 {
		return fine
	}
	return wrong(fmt.Sprintf("%d commands of the last hour have taken %s or longer, the worst %s: %s.", n, screen.Wait(o.SlowCommand), screen.Wait(worst), screen.Clean(name)),
		"SLOWLOG GET shows them: give their program a Redis of its own, or the limiter.")
}

func checkEvents(f *facts, o Options) answer {
	switch least, ok := f.settingNumber("latency-monitor-threshold"); {
	case len(f.times) == 0:
		return cannotTell("TIME is not answered")
	case f.eventsErr != nil:
		return cannotTell("LATENCY is not answered" + because(f.eventsErr))
	case ok && least == 0:
		return fine // off is the default, and SLOWLOG says most of it
	}
	for _, e := range f.events {
		if e.Name == "command" || e.Name == "fast-command" || e.Latest < o.SlowCommand || f.now().Sub(e.Time) > recent {
			continue // SLOWLOG has the commands
		}
		return wrong(fmt.Sprintf("Redis has stalled in %s, for %s.", screen.Clean(e.Name), screen.Wait(e.Latest)), "LATENCY DOCTOR says what to do about it.")
	}
	return fine
}
