package hybrid

import (
	"context"
	"errors"
	"strconv"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// message returns what is published to tell notices.
func (d *driver) message(channel, node string, list []redisstore.Notice) *redisstore.Message {
	return &redisstore.Message{Channel: d.store.Keyspace().NoticeChannel(channel), Payload: redisstore.AppendNotices(nil, node, list)}
}

// tell publishes notices by themselves.
func (d *driver) tell(e efTell) {
	d.start(e.id, callTell, d.timeout, func() event {
		return evTold{e.id, d.store.Publish(context.Background(), *d.message(e.channel, e.node, e.notices))}
	})
}

// listen subscribes to notices, and to the echo of a node.
func (d *driver) listen(e efListen) {
	if e.channel == "" {
		d.ears.listen("", "")
		return
	}
	keys := d.store.Keyspace()
	d.ears.listen(keys.NoticeChannel(e.channel), keys.EchoChannel(e.channel, e.node))
}

// wakeHeard wakes the stepping goroutine to hear what has arrived.
func (d *driver) wakeHeard() {
	select {
	case d.heard <- struct{}{}:
	default: // it will wake up already
	}
}

// hear returns the event of what the subscription has brought.
func (d *driver) hear() event {
	h := d.ears.take()
	ev := evHeard{recv: d.now(), confirmed: h.confirmed, err: h.err}
	for _, payload := range h.messages {
		node, list, err := redisstore.ReadNotices(payload)
		if err == nil {
			ev.messages = append(ev.messages, message{node, list})
		} else if !errors.Is(err, redisstore.ErrNoticeVersion) {
			d.counts.badReplies.Add(1)
		}
	}
	for _, text := range h.echoes {
		n, _ := strconv.ParseUint(text, 10, 64) // 0 is no echo
		ev.echo = max(ev.echo, n)
	}
	return ev
}

// announceRoom tells the other nodes that a caller has made room for a key.
func (d *driver) announceRoom(n redisstore.Notice) {
	if d.ears == nil {
		return
	}
	select {
	case d.requests <- request{room: &n}:
	case <-d.stop:
	}
}
