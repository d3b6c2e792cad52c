package adminlimit

import (
	"sync"
	"time"

	"github.com/hybridlimit/hybridlimit/clock"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/inside"
)

// samples is how many are kept: of ten minutes.
const samples = 600

// sample is what is kept of one second.
type sample struct {
	Time     time.Time `json:"time"`
	Mode     string    `json:"mode"`
	Admitted uint64    `json:"admitted"` // decisions in this second
	Refused  uint64    `json:"refused"`
	Pending  int64     `json:"pending_units"`
	// Exchange is how long the exchanges with Redis of this second took on average; 0: there was
	// none.
	Exchange float64 `json:"exchange_seconds"`
	Failures uint64  `json:"failures"`
}

// history samples a limiter once a second.
type history struct {
	lim  *hybrid.Limiter
	once sync.Once
	stop chan struct{}
	done chan struct{}

	mu   sync.Mutex // protects what follows
	list [samples]sample
	next int            // index of the oldest sample
	size int            // number of samples
	last inside.Figures // at the latest sample
}

func startHistory(lim *hybrid.Limiter) *history {
	h := &history{lim: lim, stop: make(chan struct{}), done: make(chan struct{}), last: inside.Of(lim).QuickFigures()}
	go h.run()
	return h
}

// close ends the sampling.
func (h *history) close() {
	h.once.Do(func() { close(h.stop) })
	<-h.done
}

// run samples until close, or until the limiter was closed.
func (h *history) run() {
	defer close(h.done)
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if h.add(inside.Of(h.lim).QuickFigures(), h.lim.State().Mode) == hybrid.Closed {
				return
			}
		case <-h.stop:
			return
		}
	}
}

// add keeps a sample, and returns its mode.
func (h *history) add(is inside.Figures, mode hybrid.Mode) hybrid.Mode {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := &h.last
	s := sample{
		Time: time.Unix(0, int64(clock.System{}.Now()+clock.System{}.Ahead())).UTC(), Mode: mode.String(), Pending: max(is.PendingUnits, 0),
		Admitted: since(is.Allowed.Total()+is.WouldRefuse, was.Allowed.Total()+was.WouldRefuse),
		Refused:  since(is.Denied.Total(), was.Denied.Total()),
		Failures: since(is.Failures, was.Failures),
	}
	if n := since(is.Exchanges.Count(), was.Exchanges.Count()); n > 0 {
		s.Exchange = max((is.Exchanges.Sum-was.Exchanges.Sum).Seconds()/float64(n), 0)
	}
	h.list[h.next] = s
	h.next, h.size, h.last = (h.next+1)%samples, min(h.size+1, samples), is
	return mode
}

// since returns what a counter has grown by. The fields of statistics are read one after another, so
// a sum may seem to shrink.
func since(is, was uint64) uint64 {
	if is < was {
		return 0
	}
	return is - was
}

// all returns the samples, the oldest first.
func (h *history) all() []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]sample, 0, h.size)
	for i := range h.size {
		list = append(list, h.list[(h.next+samples-h.size+i)%samples])
	}
	return list
}
