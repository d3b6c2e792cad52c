package browsertest

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/hybridlimit/hybridlimit/adapter/adminlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

var pictures = flag.String("pictures", "", "directory to which TestPictures writes pictures of the page, in a minute or two")

// mostPicture bounds a picture, in bytes: clones have them.
const mostPicture = 250 << 10

// load uses keys on a node, about 100 times a second, until ctx ends.
func load(ctx context.Context, lim *hybrid.Limiter) {
	rules := []*limit.Rule{limit.Must(limit.PerHour("logins", 5)), limit.Must(limit.PerMinute("search", 60)), limit.Must(limit.PerSecond("api", 20))}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		for n := range 12 {
			lim.Allow(fmt.Sprintf("user-%d", (i*4+n)%4), rules[1+n%2])
		}
		if i%20 == 0 {
			lim.Allow(fmt.Sprintf("203.0.113.%d", 7+i/20%2), rules[0])
		}
		if i%3 == 0 {
			lim.Allow("mallory@example.com", rules[0])
			lim.AllowN("crawler", rules[2], 9)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// TestPictures draws the page after an outage, by day and in the dark.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("draws only with -pictures")
	}
	b := open(t, adminlimit.Options{Title: "shop: limits", Authorise: func(*http.Request) (string, bool) { return "ann", true }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{}, 3)
	nodes := []*hybrid.Limiter{b.lim, node(t, b.redis.Addr(), hybrid.Options{NodeName: "web-2"}), node(t, b.redis.Addr(), hybrid.Options{NodeName: "worker-1"})}
	for _, lim := range nodes {
		go func() { load(ctx, lim); done <- struct{}{} }()
	}
	defer func() {
		cancel()
		for range nodes {
			<-done
		}
	}()
	b.do(t, chromedp.EmulateViewport(1280, 900), chromedp.Navigate(b.url))
	b.sampled(t, 35)
	b.redis.Kill()
	b.sampled(t, 60)
	if err := b.redis.Restart(); err != nil {
		t.Fatal(err)
	}
	b.sampled(t, 85)
	b.until(t, `document.querySelector("#state .mode.synced") !== null && document.querySelectorAll("#now tbody tr").length === 3`)
	for _, scheme := range []string{"light", "dark"} {
		b.media(t, scheme)
		b.do(t, chromedp.EmulateViewport(1280, 900))
		b.lookedUp(t, "mallory@example.com")
		b.draw(t, filepath.Join(*pictures, "admin-"+scheme+".png"))
		b.do(t, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
		b.lookedUp(t, "mallory@example.com")
		b.draw(t, filepath.Join(os.TempDir(), "admin-phone-"+scheme+".png")) // to be looked at
	}
}

// sampled waits until a plot has n samples.
func (b *tab) sampled(t *testing.T, n int) {
	t.Helper()
	b.until(t, fmt.Sprintf(`document.querySelector("#now svg polyline").points.length >= %d`, n))
}

func (b *tab) draw(t *testing.T, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, within)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	if len(picture) > mostPicture {
		t.Errorf("%s has %d bytes", path, len(picture))
	}
	if err := os.WriteFile(path, picture, 0o644); err != nil {
		t.Fatal(err)
	}
}
