package figures

import (
	"github.com/hybridlimit/hybridlimit/hybrid"

	"github.com/hybridlimit/hybridlimit/internal/inside"
)

// Snapshot is what a limiter says about itself at one moment.
type Snapshot struct {
	inside.Figures
	State hybrid.State
}

// Of returns the present figures of a limiter.
func Of(lim *hybrid.Limiter) *Snapshot { return &Snapshot{inside.Of(lim).Figures(), lim.State()} }

// Metric is one name with all of its series.
type Metric struct {
	Name    string
	Help    string
	Counter bool     // only ever grows; else it is a gauge
	Labels  []string // besides the name of the limiter
	// Read calls add for each series, always with as many values of labels as there are Labels.
	Read func(s *Snapshot, add Add)
}

// Add takes the value of one series.
type Add func(value float64, labels ...string)
