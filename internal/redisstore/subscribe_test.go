package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// storeOn returns a store that uses rdb.
func storeOn(t *testing.T, rdb redis.UniversalClient) *Store {
	t.Helper()
	s, err := NewStore(rdb, Options{Shards: 4, CommandTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// listening returns a confirmed subscription.
func listening(t *testing.T, s *Store, channels ...string) *Subscription {
	t.Helper()
	sub := s.Subscribe(channels...)
	t.Cleanup(sub.Close)
	if channel, payload, err := sub.Receive(5 * time.Second); channel != "" || payload != "" || err != nil {
		t.Fatalf("%q, %q, %v instead of a confirmation", channel, payload, err)
	}
	return sub
}

// wantHeard checks what a subscription hears next.
func wantHeard(t *testing.T, sub *Subscription, channel, payload string) {
	t.Helper()
	if c, p, err := sub.Receive(5 * time.Second); c != channel || p != payload || err != nil {
		t.Fatalf("%q, %q, %v, want %q, %q", c, p, err, channel, payload)
	}
}

// everyWay publishes by each call that can, and checks that it is heard, in this order.
func everyWay(t *testing.T, s *Store) {
	t.Helper()
	channel, echo := s.Keyspace().NoticeChannel("id1"), s.Keyspace().EchoChannel("id1", "n1")
	sub := listening(t, s, channel, echo)
	got := make(chan string, 62)
	go func() { // at once: miniredis waits for those who listen
		defer close(got)
		for range cap(got) {
			channel, payload, err := sub.Receive(5 * time.Second)
			got <- fmt.Sprint(channel, " ", payload, " ", err)
		}
	}()
	if err := s.Publish(ctx, Message{channel, []byte("alone\x00\xff\r\n"), 0}); err != nil {
		t.Fatal(err)
	}
	batches := []*Batch{{Shard: 1, Node: "n1", Seq: 1}, {Shard: 3, Node: "n1", Seq: 1}}
	for range 20 { // a client that chose a server at random would not always choose well
		for _, list := range [][]*Batch{batches, batches[:1], nil} {
			out, err := s.Exec(ctx, list, &Message{channel, []byte("with"), 0})
			if err != nil || len(out) != len(list) {
				t.Fatalf("%v, %v", out, err)
			}
			for i, o := range out {
				if o.Err != nil {
					t.Errorf("batch %d: %v", i, o.Err)
				}
			}
		}
	}
	b, err := s.Beat(ctx, "n1", time.Second, []int{0}, BeatOptions{Echo: "echo", EchoChannel: echo})
	if err != nil || b.EchoErr != nil || b.Nodes != 1 || b.Channel != "" {
		t.Fatalf("%+v, %v", b, err)
	}
	n := 0
	for is := range got {
		want := channel + " with <nil>"
		switch n {
		case 0:
			want = channel + " alone\x00\xff\r\n <nil>"
		case 61:
			want = echo + " echo <nil>"
		}
		if n++; is != want {
			t.Fatalf("message %d: %q, want %q", n, is, want)
		}
	}
}

// Fault 120: RESP2 and RESP3 on other versions.
func TestPublishAndSubscribe(t *testing.T) {
	for name, protocol := range map[string]int{"RESP2": 2, "RESP3": 3} {
		t.Run(name, func(t *testing.T) {
			o := options(redistest.Start(t).Addr())
			o.Protocol = protocol
			rdb := redis.NewClient(o)
			defer rdb.Close()
			s := storeOn(t, rdb)
			everyWay(t, s)
			// A connection that is lost ends the subscription, although go-redis would go on as if nothing had
			// been missed.
			sub := listening(t, s, "c")
			if _, _, err := sub.Receive(20 * time.Millisecond); !errors.Is(err, ErrSilence) || !strings.HasPrefix(err.Error(), "remote: ") {
				t.Errorf("silence: %v", err)
			}
			sub = listening(t, s, "c")
			rdb.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub")
			_, _, err := sub.Receive(5 * time.Second)
			wantClass(t, err, ClassUnavailable, "closed")
			if _, _, again := sub.Receive(5 * time.Second); !errors.Is(again, errors.Unwrap(err)) {
				t.Errorf("then %v", again)
			}
		})
	}
}

// On a Cluster a message reaches those who listen at another master, too.
//
// Fault 120: Pub/Sub on a Cluster of other versions.
func TestPublishOnACluster(t *testing.T) {
	k := redistest.StartCluster(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: k.Addrs(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	s := storeOn(t, rdb)
	everyWay(t, s)
	channel := s.Keyspace().NoticeChannel("id2")
	var subs []*Subscription
	for _, addr := range k.Addrs() { // whichever master it is, a plain client listens there
		subs = append(subs, listening(t, storeOn(t, dial(t, addr)), channel))
	}
	if _, err := s.Exec(ctx, nil, &Message{channel, []byte("to all"), 0}); err != nil {
		t.Fatal(err)
	}
	for _, sub := range subs {
		wantHeard(t, sub, channel, "to all")
	}
}

// Close ends a Receive that waits for Redis, one that waits for a connection, and one that
// has not begun.
func TestSubscriptionCloses(t *testing.T) {
	b := onReal(t)
	o := options("127.0.0.1:1")
	dialing := make(chan bool, 1)
	o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		dialing <- true
		<-ctx.Done()
		return nil, ctx.Err()
	}
	hung := redis.NewClient(o)
	defer hung.Close()
	patient, err := NewStore(hung, Options{CommandTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	waiting := listening(t, storeOn(t, b.rdb), "c")
	for name, sub := range map[string]*Subscription{"reading": waiting, "dialing": patient.Subscribe("c"), "closed before": patient.Subscribe("c")} {
		ended := make(chan error, 1)
		if name == "closed before" {
			sub.Close()
		}
		go func() {
			_, _, err := sub.Receive(0)
			ended <- err
		}()
		if name == "dialing" {
			<-dialing
		}
		sub.Close()
		sub.Close()
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%s: no error", name)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: Receive has not ended", name)
		}
	}
	poll(t, func() bool { return b.rdb.PubSubNumSub(ctx, "c").Val()["c"] == 0 })
}
