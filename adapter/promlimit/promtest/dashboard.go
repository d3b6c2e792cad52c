package promtest

import (
	"encoding/json"
	"os"
	"strings"
)

// Dashboard is what is read of a dashboard of Grafana.
type Dashboard struct {
	Title      string
	Templating struct {
		List []struct{ Name, Definition string }
	}
	Annotations struct{ List []Target } // times that each panel marks
	Panels      []Panel
}

// Panel is a place of a dashboard with one picture, or the heading of a row.
type Panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int } // of 24 columns
	Targets                  []Target
	FieldConfig              struct {
		Defaults struct {
			Unit     string
			Decimals *int
			Custom   struct{ AxisLabel string }
			// Thresholds are the colors of a single number, from Value on.
			Thresholds struct {
				Steps []struct {
					Value float64
					Color string
				}
			}
		}
		Overrides []struct {
			Matcher    struct{ ID, Options string }
			Properties []struct {
				ID    string
				Value struct{ FixedColor string }
			}
		}
	}
}

// Target is a query, with what to call its series.
type Target struct{ Name, RefID, Expr, LegendFormat string }

// ReadDashboard reads a dashboard from a file.
func ReadDashboard(file string) (d Dashboard, err error) {
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	return d, err
}

// Fill returns an expression as Grafana asks it for all limiters and instances: a rate is
// over so long.
func Fill(expr, over string) string {
	return strings.NewReplacer("$limiter", ".*", "$instance", ".*", "$__rate_interval", over).Replace(expr)
}
