package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
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
			everyWay(t, storeOn(t, rdb))
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

// On a Ring, whose servers know nothing of each other, both sides go to the same one.
func TestPublishOnARing(t *testing.T) {
	addrs := map[string]string{"a": redistest.Start(t).Addr(), "b": redistest.Start(t).Addr(), "c": redistest.Start(t).Addr()}
	for range 3 { // which server it is depends on the names
		rdb := redis.NewRing(&redis.RingOptions{Addrs: addrs, ContextTimeoutEnabled: true})
		everyWay(t, storeOn(t, rdb))
		rdb.Close()
		addrs = map[string]string{"x" + addrs["a"]: addrs["a"], "b": addrs["b"], "c": addrs["c"], "d": addrs["a"]}
		addrs["a"] = addrs["b"]
		for _, addr := range addrs {
			dial(t, addr).FlushAll(ctx)
		}
	}
}

// A user without the right to publish books all the same, one without the right to
// subscribe is told at once, and neither costs a heartbeat anything.
func TestPermissionsOfChannels(t *testing.T) {
	b := onReal(t)
	for name, acl := range map[string][]any{
		"publish":  {"~*", "&*", "+@all", "-publish"},
		"channels": {"~*", "&other*", "+@all"},
		"none":     {"~*", "resetchannels", "+@all", "-subscribe", "-publish"},
	} {
		b.do(append([]any{"ACL", "SETUSER", name, "reset", "on", ">pw"}, acl...)...)
		o := options(b.addr)
		o.Username, o.Password = name, "pw"
		rdb := redis.NewClient(o)
		defer rdb.Close()
		s := storeOn(t, rdb)
		channel := s.Keyspace().NoticeChannel("id1")
		batch := &Batch{Shard: 1, Node: name, Seq: 1}
		out, err := s.Exec(ctx, []*Batch{batch}, &Message{channel, []byte("x"), 0})
		wantClass(t, err, ClassMisconfigured, "noperm")
		if out[0].Err != nil || out[0].Reply.Verdict != VerdictApplied {
			t.Errorf("%s: %+v", name, out[0])
		}
		wantClass(t, s.Publish(ctx, Message{channel, nil, 0}), ClassMisconfigured, "noperm")
		beat, err := s.Beat(ctx, name, time.Minute, []int{1}, BeatOptions{Offer: "id1", Echo: "x", EchoChannel: channel})
		wantClass(t, beat.EchoErr, ClassMisconfigured, "noperm")
		if err != nil || beat.Nodes == 0 || beat.Channel != "id1" || beat.Seqs[0] != 1 {
			t.Errorf("%s: %+v, %v", name, beat, err)
		}
		sub := s.Subscribe(channel)
		_, _, err = sub.Receive(5 * time.Second)
		if name == "publish" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else {
			wantClass(t, err, ClassMisconfigured, "noperm")
		}
		sub.Close()
	}
}

// A connection that is lost ends the subscription, although go-redis would go on as if
// nothing had been missed. A new one works, also after a restart of the server.
func TestSubscriptionEndsWithAGap(t *testing.T) {
	b := onReal(t)
	s := storeOn(t, b.rdb)
	for name, cut := range map[string]func(){
		"kill": func() { b.do("CLIENT", "KILL", "TYPE", "pubsub") },
		"restart": func() {
			b.real.Kill()
			if err := b.real.Restart(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		sub := listening(t, s, "c", "d")
		cut()
		_, _, err := sub.Receive(5 * time.Second)
		wantClass(t, err, ClassUnavailable, "closed")
		if _, _, again := sub.Receive(5 * time.Second); !errors.Is(again, errors.Unwrap(err)) {
			t.Errorf("%s: then %v", name, again)
		}
		sub.Close()
		sub = listening(t, s, "c", "d")
		poll(t, func() bool { return s.Publish(ctx, Message{"d", []byte("heard"), 0}) == nil })
		wantHeard(t, sub, "d", "heard")
		if n := b.rdb.PubSubNumSub(ctx, "c").Val()["c"]; n != 1 {
			t.Errorf("%s: %d connections listen", name, n)
		}
		sub.Close()
	}
	sub := listening(t, s, "c")
	_, _, err := sub.Receive(20 * time.Millisecond)
	if !errors.Is(err, ErrSilence) || !strings.HasPrefix(err.Error(), "remote: ") {
		t.Errorf("silence: %v", err)
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

// Close does not wait for a client that connects anew after a break, with a Dialer that does not
// notice that its context has ended. That of TLS is one.
func TestSubscriptionClosesWhileTheDialerHangs(t *testing.T) {
	b := onReal(t)
	first, again, release := make(chan net.Conn, 1), make(chan bool, 100), make(chan bool)
	var dials atomic.Int64
	o := *b.rdb.Options()
	o.Dialer = func(_ context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) > 1 {
			again <- true
			<-release
			return nil, net.ErrClosed
		}
		conn, err := net.Dial(network, addr)
		first <- conn
		return conn, err
	}
	rdb := redis.NewClient(&o)
	defer rdb.Close()
	sub := listening(t, storeOn(t, rdb), "c")
	ended, closed := make(chan error, 1), make(chan bool)
	go func() {
		_, _, err := sub.Receive(0)
		ended <- err
	}()
	(<-first).Close()
	<-again
	go func() {
		sub.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("Close waits for the dialer")
	}
	close(release)
	if err := <-ended; err == nil {
		t.Error("no error")
	}
}
