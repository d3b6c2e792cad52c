package adminlimit_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter/adminlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/hybridtest"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What a check of one of 65,536 keys costs while nobody looks at the page, and while somebody loads all
// of it every second. Run it with -benchtime 10s: shorter runs hold few views.
func BenchmarkAllowWithPage(b *testing.B) {
	for _, viewed := range []bool{false, true} {
		b.Run("viewed="+strconv.FormatBool(viewed), func(b *testing.B) {
			h := hybridtest.New(b, hybridtest.Options{Limiter: hybrid.Options{MaxKeys: 1 << 17}})
			page, err := adminlimit.New(h.Limiter, adminlimit.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer page.Close()
			rule := limit.Must(limit.PerHour("api", 1000))
			keys := make([]string, 1<<16)
			for i := range keys {
				keys[i] = "key-" + strconv.Itoa(i)
				h.Limiter.Allow(keys[i], rule)
			}
			stop, done := make(chan struct{}), make(chan int)
			go func() { done <- view(page, viewed, stop) }()
			took := make([]time.Duration, 0, b.N)
			for i := 0; b.Loop(); i++ {
				start := time.Now()
				h.Limiter.Allow(keys[i*40503&(1<<16-1)], rule)
				took = append(took, time.Since(start))
			}
			close(stop)
			views := <-done
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
			b.ReportMetric(float64(took[len(took)*999/1000].Nanoseconds()), "p99.9-ns")
			b.ReportMetric(float64(views), "views")
		})
	}
}

// view loads the page once a second until stop, if it is to be viewed, and returns how often.
func view(page http.Handler, viewed bool, stop chan struct{}) (views int) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		if viewed {
			page.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "http://localhost/limits/", nil))
			views++
		}
		select {
		case <-t.C:
		case <-stop:
			return views
		}
	}
}
