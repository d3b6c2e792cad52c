// Command tokens limits the tokens that a user gets of a model in a minute. How many an answer has
// is known only afterwards: go run ./examples/tokens
package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/adapter/httplimit"
	"github.com/hybridlimit/hybridlimit/examples/internal/demo"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

var tokens = limit.Must(limit.PerMinute("tokens", 500))

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // it takes some seconds
	defer cancel()
	server, err := demo.StartRedis(out)
	if err != nil {
		return err
	}
	defer server.Close()
	f, urls := &demo.Fleet{Ctx: ctx, Out: out}, []string(nil)
	ended := make(chan int, 1) // how many tokens the model has said
	for range 2 {              // processes
		rdb := redis.NewClient(hybrid.RedisOptions(server.Addr()))
		defer rdb.Close()
		lim := limit.Must(hybrid.New(rdb, hybrid.Options{}))
		defer lim.Close()
		url, stop, err := demo.Serve(service(lim, ended))
		if err != nil {
			return err
		}
		defer stop()
		f.Nodes, urls = append(f.Nodes, lim), append(urls, url)
	}
	f.Await(hybrid.Synced)
	for _, q := range []struct {
		process, most, answer, leave int // an answer of so many tokens, unless alice leaves
	}{{0, 200, 30, 0}, {1, 200, 70, 0}, {0, 450, 10, 0}, {1, 300, 300, 20}, {0, 0, 400, 0}, {1, 0, 10, 0}} {
		f.Share(tokens, "alice") // or wait for a second, in which the processes hear of each other
		if f.Err != nil {
			return f.Err
		}
		status, read, err := ask(ctx, fmt.Sprintf("%s?max_tokens=%d&answer=%d", urls[q.process], q.most, q.answer), q.leave)
		if err != nil {
			return err
		}
		said, left := <-ended, f.Nodes[q.process].Peek("alice", tokens).Remaining
		fmt.Fprintf(out, "process %d, max_tokens %d: %d, alice has read %d tokens of %d, %d are left\n", q.process+1, q.most, status, read, said, left)
	}
	return nil
}

// service streams what the model says. max_tokens are taken before, and what it has not said is
// handed back: an answer that nobody has bounded is charged when it is known.
func service(lim *hybrid.Limiter, ended chan<- int) http.Handler {
	protect := limit.Must(httplimit.NewAll(limit.WithContext(lim), httplimit.Options{}, httplimit.Limit{
		Rule: tokens, Key: httplimit.By(func(r *http.Request) string { name, _, _ := r.BasicAuth(); return name }),
		Cost:   func(r *http.Request) int64 { return int64(cmp.Or(number(r, "max_tokens"), 50)) }, // 50 is the average
		Settle: func(_ *http.Request, a httplimit.Answer) int64 { return a.Counted },
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := 0
		protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tick := time.NewTicker(2 * time.Millisecond) // the model thinks
			defer tick.Stop()
			for ; said < number(r, "answer") && r.Context().Err() == nil; said++ { // until the client has gone
				<-tick.C
				httplimit.Count(r.Context(), 1)
				fmt.Fprintln(w, "word")
				w.(http.Flusher).Flush()
			}
		})).ServeHTTP(w, r)
		ended <- said
	})
}

func number(r *http.Request, name string) int { n, _ := strconv.Atoi(r.FormValue(name)); return n }

// ask reads an answer to its end, or leaves after some tokens.
func ask(ctx context.Context, url string, leave int) (status, read int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, 0, err
	}
	r.SetBasicAuth("alice", "")
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	words := bufio.NewScanner(resp.Body)
	for resp.StatusCode == http.StatusOK && (leave == 0 || read < leave) && words.Scan() {
		read++
	}
	return resp.StatusCode, read, words.Err()
}
