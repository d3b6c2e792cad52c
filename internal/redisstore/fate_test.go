package redisstore

import (
	"maps"
	"slices"
	"testing"
)

// Whoever got no answer to a batch may ask for its fate under the next number.
func TestFateOfABatch(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		x := newBookings(t, b)
		numbered := func(seq, prev, n int64, nonce uint64) *Batch {
			out := x.batch(seq, prev, n)
			out.Nonce = nonce
			return out
		}
		ask := func(seq, prev int64, nonce uint64) *Batch {
			return &Batch{Node: "n1", Seq: seq, Prev: prev, Nonce: nonce}
		}
		wantReply(t, exec(t, x.s, numbered(1, 0, 3, 7)), FateApplied, 6)

		// The second one was booked: asking changes nothing, and may be repeated.
		wantReply(t, exec(t, x.s, numbered(2, 1, 1, 8)), FateApplied, 8)
		for range 2 {
			r := exec(t, x.s, ask(3, 1, 8))
			if wantReply(t, r, FateEarlier, 8); r.Earlier != 2 {
				t.Errorf("number %d was booked, want 2", r.Earlier)
			}
		}
		wantReply(t, exec(t, x.s, numbered(2, 1, 1, 8)), FateDuplicate, 8)

		// The next one goes on from it. It does not arrive, and is asked for: it never will
		// be booked then.
		wantReply(t, exec(t, x.s, ask(5, 2, 9)), FateApplied, 8)
		wantReply(t, exec(t, x.s, ask(5, 2, 9)), FateDuplicate, 8)
		wantReply(t, exec(t, x.s, numbered(4, 2, 5, 9)), FateStale, 8)
		x.wantUsed(4)

		// The fate of somebody else's batch of that number says nothing.
		wantReply(t, exec(t, x.s, numbered(6, 5, 1, 10)), FateApplied, 10)
		wantReply(t, exec(t, x.s, ask(7, 5, 11)), FateLost, 10)
		b.everyKeyExpires()
	})
}

// The answer says which operations had failed, and what others were forgiven.
func TestFateSaysWhatHasFailed(t *testing.T) {
	onBoth(t, func(t *testing.T, b *backend) {
		x := newBookings(t, b)
		other := x.s.Keyspace().CounterKey(x.funnel, "other")
		b.set(x.wk, "garbage")
		batch := &Batch{Node: "n1", Seq: 1, Ops: []Op{
			{Key: x.wk, Rule: x.window, Units: 1, Buckets: []Bucket{{ID: x.bucket(), Units: 1}}},
			{Key: x.fk, Rule: x.funnel, Units: 3, Ahead: arithOf(x.funnel).Cost(3)},
			{Key: other, Rule: x.funnel, Units: 5, Ahead: arithOf(x.funnel).Cost(5), Debt: 5, Ceiling: arithOf(x.funnel).Cost(2)},
		}}
		if r := exec(t, x.s, batch); r.Fate != FateApplied || r.States[0].Err == nil || r.States[2].Forgiven != 3 {
			t.Fatalf("%+v", r)
		}
		r := exec(t, x.s, &Batch{Node: "n1", Seq: 2})
		wantReply(t, r, FateEarlier, 8)
		if !slices.Equal(r.Failed, []int{0}) || !maps.Equal(r.Forgiven, map[int]int64{2: 3}) {
			t.Errorf("failed %v, forgiven %v", r.Failed, r.Forgiven)
		}
		// The next batch goes on from the one that was booked.
		wantReply(t, exec(t, x.s, &Batch{Node: "n1", Seq: 3, Prev: 1, Nonce: 5, Ops: batch.Ops[1:2]}), FateApplied, 11)
	})
}

func TestDecodeFate(t *testing.T) {
	const head = "k 1760000000123456 5"
	r, err := decodeBatch(head+"\n4 3,11 0:7,12:1", nil)
	if err != nil || r.Earlier != 4 || !slices.Equal(r.Failed, []int{3, 11}) || !maps.Equal(r.Forgiven, map[int]int64{0: 7, 12: 1}) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := decodeBatch(head+"\n4 - -", nil); err != nil || len(r.Failed)+len(r.Forgiven) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []string{
		"4 3, -", "4  -", "4 -1 -", "4 1001 -", "4 -", "4 - 0", "4 - 0:", "4 - 0:1:2", "4 - 01:1", "4 - - x", "4 - -\n- -", "4 - -\n", "", "- -", "x - -",
	} {
		if r, err := decodeBatch(head+"\n"+bad, nil); err == nil {
			t.Errorf("%q is decoded to %+v", bad, r)
		}
	}
	if r, err := decodeBatch(head, nil); err == nil {
		t.Errorf("no lists: %+v", r)
	}
}
