package redisstore

import "context"

// Message is what is published on a channel.
type Message struct {
	Channel string // see [Keyspace.NoticeChannel]
	Payload []byte
}

// call returns the call that publishes m. Clients of a Cluster and of a Ring are told to
// route it by its channel, as they route subscriptions: they take PUBLISH for a command
// without a key, and a Ring would send it to another server than the one that is listened to.
func (m Message) call() *call {
	return &call{args: []any{"publish", m.Channel, m.Payload}, keyAt: 1}
}

// Publish publishes one message by itself. That nobody listens is no error.
func (s *Store) Publish(ctx context.Context, m Message) error {
	c := m.call()
	s.srv.do(ctx, c)
	return wrap(c.err)
}
