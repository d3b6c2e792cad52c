package inside_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/inside"
	"github.com/hybridlimit/hybridlimit/limit"
	"github.com/hybridlimit/hybridlimit/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The inside of a limiter is found through what wraps it, and what is no limiter has none.
func TestOf(t *testing.T) {
	shared, alone := limit.Must(hybrid.New(nil, hybrid.Options{})), limit.Must(local.New(local.Options{}))
	defer shared.Close()
	defer alone.Close()
	log := limit.Must(limit.SlidingLog("log", 5, time.Minute))
	type embedded struct{ *hybrid.Limiter }
	for name, c := range map[string]struct {
		lim      any
		has, nil bool
		rejects  bool // the rule of a sliding log
	}{
		"nil":              {nil, false, true, false},
		"a nil limiter":    {(*hybrid.Limiter)(nil), true, true, false},
		"a limiter":        {shared, true, false, true},
		"embedded":         {embedded{shared}, true, false, true},
		"wrapped":          {limit.WithContext(shared), true, false, true},
		"nothing, wrapped": {limit.WithContext((*hybrid.Limiter)(nil)), false, true, false},
		"local":            {alone, false, false, false},
		"local, wrapped":   {limit.WithContext(alone), false, false, false},
		"something":        {struct{}{}, false, false, false},
	} {
		if v := inside.Of(c.lim); (v != nil) != c.has || inside.IsNil(c.lim) != c.nil {
			t.Errorf("%s: %v, nil: %v", name, v, inside.IsNil(c.lim))
		} else if v != nil { // of a nil limiter, too
			v.CountInvalid(nil)
			v.CountExempt(strings.Repeat("long", 100))
			if _, err := v.Nodes(t.Context()); err != nil || v.ID() != "" || len(v.Nearest(5)) != 0 || len(v.Rules()) != 0 {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := v.Explain(context.Background(), "k", log); !errors.Is(err, limit.ErrUnsupported) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := inside.CheckRule(c.lim, log); errors.Is(err, limit.ErrUnsupported) != c.rejects {
			t.Errorf("%s: %v", name, err)
		}
	}
	if f := inside.Of(shared).QuickFigures(); f.Invalid != 3 || f.Exempt != 3 {
		t.Errorf("%+v", f)
	}
}

// Each duration says its unit as JSON, and none is left out.
func TestDurationsSayTheirUnit(t *testing.T) {
	for _, v := range []any{inside.Figures{}, inside.Latency{}} {
		text, err := json.Marshal(v)
		var fields map[string]any
		if err != nil || json.Unmarshal(text, &fields) != nil {
			t.Fatalf("%s, %v", text, err)
		}
		for f := range reflect.TypeOf(v).Fields() {
			_, bare := fields[f.Name]
			_, seconds := fields[f.Name+"Seconds"]
			if is := f.Type == reflect.TypeFor[time.Duration](); is == bare || is != seconds {
				t.Errorf("%v.%s, a %v, is in %s", reflect.TypeOf(v), f.Name, f.Type, text)
			}
		}
	}
}
