package redisstore

import (
	"crypto/sha1"
	"encoding/binary"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/internal/report"
	"github.com/hybridlimit/hybridlimit/limit"
)

// NoticeIDOf returns the name of the counter at a Redis key: the first 16 bytes of the SHA-1, so that
// a reader of the channel learns no keys.
func NoticeIDOf[K string | []byte](redisKey K) report.NoticeID {
	sum := sha1.Sum([]byte(redisKey))
	return report.NoticeID(sum[:len(report.NoticeID{})])
}

// maxCounterBytes bounds the name of a counter: prefix, rule, key, and what is between them.
const maxCounterBytes = MaxKeyPrefixBytes + arith.MaxNameBytes + MaxKeyBytes + 32

// NoticeID returns NoticeIDOf of [Keyspace.CounterKeyIn], without allocating.
func (k Keyspace) NoticeID(shard int, rule *limit.Rule, key StoredKey) report.NoticeID {
	var buf [maxCounterBytes]byte
	return NoticeIDOf(k.appendCounter(buf[:0], shard, rule, key))
}

// RoomNotice returns the notice that a key has room since it was lowered.
func (k Keyspace) RoomNotice(rule *limit.Rule, key string, done Renewed) report.Notice {
	return report.Notice{
		ID: NoticeIDOf(k.CounterKey(rule, key)), Shard: k.Shard(key), Shape: arith.Of(rule).ShapeHash(),
		Limit: rule.Limit(), Gen: done.State.Gen, Now: done.Now,
	}
}

// MaxNotices is the largest number of notices of one message.
const MaxNotices = 500

// Format of a message: noticeVersion, the length of the node's name (1 byte), the name,
// the number of notices, and of each the id (16 bytes), the shape (4 bytes, big-endian),
// shard, limit, generation, Now and Until in µs. Numbers are varints of the shortest form,
// from 0 to 2^53, the shard below [MaxShards]. Each content has one spelling.
const noticeVersion = 1

// AppendNotices appends the message by which a node publishes notices, at most the first
// [MaxNotices]. Numbers out of range are set to the nearest that is in it.
func AppendNotices(b []byte, node string, list []report.Notice) []byte {
	node, list = node[:min(len(node), MaxNodeBytes)], list[:min(len(list), MaxNotices)]
	b = append(b, noticeVersion, byte(len(node)))
	b = append(b, node...)
	b = binary.AppendUvarint(b, uint64(len(list)))
	for i := range list {
		n := &list[i]
		b = append(b, n.ID[:]...)
		b = binary.BigEndian.AppendUint32(b, n.Shape)
		b = binary.AppendUvarint(b, uint64(min(max(n.Shard, 0), MaxShards-1)))
		us := time.Microsecond
		for _, v := range [...]int64{n.Limit, n.Gen, int64(n.Now / us), int64(n.Until/us + (n.Until%us+us-1)/us)} {
			b = binary.AppendUvarint(b, uint64(min(max(v, 0), arith.MaxUnits)))
		}
	}
	return b
}

// ReadNotices reads a message of [AppendNotices]; ok is false for any other text. A message of
// another version, which a later release may send, has no notices. What is returned shares no
// memory with the payload.
func ReadNotices(payload string) (node string, list []report.Notice, ok bool) {
	if payload != "" && payload[0] != noticeVersion {
		return "", nil, true
	}
	const least = len(report.NoticeID{}) + 4 + 5 // bytes of a notice
	r := noticeReader(payload)
	r.bytes(1)
	node = string(r.bytes(int(r.bytes(1)[0])))
	list = make([]report.Notice, min(r.number(), MaxNotices, int64(len(r)/least)))
	for i := range list {
		n := &list[i]
		copy(n.ID[:], r.bytes(len(n.ID)))
		n.Shape = binary.BigEndian.Uint32(r.bytes(4))
		n.Shard, n.Limit, n.Gen = int(r.number()), r.number(), r.number()
		n.Now, n.Until = time.Duration(r.number())*time.Microsecond, time.Duration(r.number())*time.Microsecond
	}
	// Each content has one spelling: what is out of range, too long or too short shows here.
	if !validNode(node) || string(AppendNotices(make([]byte, 0, len(payload)), node, list)) != payload {
		return "", nil, false
	}
	return node, list, true
}

// noticeReader is the rest of a message. At its end it returns zeros.
type noticeReader []byte

// bytes takes the next n bytes.
func (r *noticeReader) bytes(n int) []byte {
	if len(*r) < n {
		*r = nil
		return make([]byte, n)
	}
	b := (*r)[:n]
	*r = (*r)[n:]
	return b
}

// number takes the next number, capped just above the largest valid one.
func (r *noticeReader) number() int64 {
	v, n := binary.Uvarint(*r)
	*r = (*r)[max(n, 0):]
	return int64(min(v, arith.MaxUnits+1))
}

// validNode reports whether a node's name may be part of a key's name.
func validNode(node string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	return node != "" && len(node) <= MaxNodeBytes && strings.Trim(node, allowed) == ""
}
