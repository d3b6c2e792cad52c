package redisstore

import (
	"strings"
	"testing"
	"time"
)

// channelOf beats, offers an id, and returns that of the channel.
func channelOf(t *testing.T, s *Store, offer string) string {
	t.Helper()
	beat, err := s.Beat(ctx, "n1", time.Second, []int{0}, BeatOptions{Offer: offer})
	if err != nil || beat.Nodes != 1 {
		t.Fatalf("%+v, %v", beat, err)
	}
	return beat.Channel
}

// The first id that is offered is that of all, until the database is lost.
func TestChannelID(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		s := b.store()
		key := s.Keyspace().ChannelKey()
		if id := channelOf(t, s, ""); id != "" || b.get(key) != "" {
			t.Errorf("without an offer: %q, %q is kept", id, b.get(key))
		}
		for _, offer := range []string{"first1", "second2", "first1"} {
			if id := channelOf(t, s, offer); id != "first1" {
				t.Errorf("offered %s: %q", offer, id)
			}
		}
		b.rdb.PExpire(ctx, key, time.Minute)
		if channelOf(t, s, ""); b.rdb.PTTL(ctx, key).Val() > time.Minute {
			t.Error("a beat that is not interested has prolonged the id")
		}
		if channelOf(t, s, "third3"); b.rdb.PTTL(ctx, key).Val() < LedgerTTL-time.Minute {
			t.Errorf("after a beat the id lasts for %v", b.rdb.PTTL(ctx, key).Val())
		}
		b.everyKeyExpires()
		b.rdb.FlushAll(ctx)
		if id := channelOf(t, s, "fourth4"); id != "fourth4" {
			t.Errorf("after FLUSHALL: %q", id)
		}
	})
}

// A key that holds anything else than an id costs no heartbeat.
func TestBrokenChannelKey(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		s := b.store()
		key := s.Keyspace().ChannelKey()
		for _, garbage := range []string{"", " ", "a b", "a-b", "a\n", "ä", "\x00", strings.Repeat("x", maxChannelBytes+1), strings.Repeat("x", 1<<20)} {
			b.set(key, garbage)
			if id := channelOf(t, s, "good1"); id != "" || b.get(key) != garbage {
				t.Errorf("%.50q: %q, and %.50q is kept", garbage, id, b.get(key))
			}
		}
		for _, fine := range []string{"x", strings.Repeat("Z9", maxChannelBytes/2)} {
			b.set(key, fine)
			if id := channelOf(t, s, "good1"); id != fine {
				t.Errorf("%q: %q", fine, id)
			}
		}
		b.rdb.Del(ctx, key)
		b.rdb.LPush(ctx, key, "x")
		if id := channelOf(t, s, "good1"); id != "" {
			t.Errorf("a list: %q", id)
		}
		b.set(s.Keyspace().NodesKey(), "broken") // blames the list alone
		b.rdb.Del(ctx, key)
		if beat, err := s.Beat(ctx, "n1", time.Second, nil, BeatOptions{Offer: "good1"}); err == nil || beat.Nodes != 0 || beat.Channel != "good1" {
			t.Errorf("a broken list of nodes: %+v, %v", beat, err)
		}
	})
}
