// Command picture draws the dashboard of package promlimit from a real run: two limiters on a
// redis-server that is frozen for a fifth of the time, and comes back. It stores what their
// metrics pages answer, evaluates each query of the dashboard with the engine of Prometheus,
// and writes one HTML page. It is a plain drawing of what Grafana would show, not Grafana.
//
//	GOWORK=off go run ./picture -out /tmp/dashboard.html
//	chromium --headless --no-sandbox --hide-scrollbars --force-device-scale-factor=0.85 --window-size=1450,1970 \
//	    --screenshot=../../../docs/dashboard.png /tmp/dashboard.html
//
// Run it in adapter/promlimit/promtest, with a redis-server in PATH.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/hybridlimit/hybridlimit/adapter/promlimit/promtest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, says io.Writer) error {
	flags := flag.NewFlagSet("picture", flag.ContinueOnError)
	flags.SetOutput(says)
	length := flags.Duration("for", 5*time.Minute, "how long there is traffic, at least 10s; scraped 300 times")
	out := flags.String("out", "", "where to write the page")
	file := flags.String("dashboard", "../dashboard.json", "the dashboard")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *out == "" || *length < 10*time.Second {
		return fmt.Errorf("-out %q -for %v: a file and at least 10s are needed", *out, *length)
	}
	d, err := promtest.ReadDashboard(*file)
	if err != nil {
		return err
	}
	data, err := os.MkdirTemp("", "picture")
	if err != nil {
		return err
	}
	defer os.RemoveAll(data)
	prom, err := promtest.Open(data)
	if err != nil {
		return err
	}
	defer prom.Close()
	from, until, err := serve(ctx, prom, *length, says)
	if err != nil {
		return err
	}
	to, err := os.Create(*out)
	if err != nil {
		return err
	}
	defer to.Close()
	fmt.Fprintln(says, "writes", to.Name())
	return draw(to, d, prom, from, until, until.Sub(from)/scrapes)
}
