package doctor

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit/internal/redisstore"
)

// tryNotices subscribes to a channel that no limiter uses, and publishes a message there. That
// takes a connection of its own, as in a limiter.
func (f *facts) tryNotices(ctx context.Context, server redis.UniversalClient, keys redisstore.Keyspace, timeout time.Duration) {
	store, err := redisstore.NewStore(server, redisstore.Options{KeyPrefix: keys.Prefix(), Shards: keys.Shards(), CommandTimeout: timeout})
	if err != nil {
		f.notices = []trial{{"subscribe", err}}
		return
	}
	channel := keys.NoticeChannel("doctor")
	sub := store.Subscribe(channel)
	defer sub.Close()
	_, _, heard := sub.Receive(timeout)
	published := store.Publish(ctx, redisstore.Message{Channel: channel, Payload: []byte("doctor")})
	if heard == nil && published == nil {
		_, _, heard = sub.Receive(timeout)
	}
	f.notices = []trial{{"publish", published}, {"subscribe", heard}}
}

func checkNotices(f *facts, _ Options) answer {
	if f.mayNotSelect() {
		return fine
	}
	channels, rights, unknown := false, []string{}, []string{}
	for _, t := range f.notices {
		switch reason := t.reason(); {
		case reason == "noperm" && !strings.Contains(t.err.Error(), "command"):
			channels = true
		case reason == "noperm":
			rights = append(rights, "+"+t.command)
		case reason == "unsupported":
			unknown = append(unknown, "redis.conf: remove the line that begins with: rename-command "+strings.ToUpper(t.command))
		}
	}
	switch {
	case channels || len(rights) > 0:
		return f.mayNotNotify(channels, rights)
	case len(unknown) > 0:
		return wrong("This server does not know PUBLISH or SUBSCRIBE.", unknown...)
	}
	for _, t := range f.notices {
		if t.err != nil {
			return wrong(fmt.Sprintf("%s does not work: %.200s.", strings.ToUpper(t.command), strings.TrimPrefix(t.err.Error(), "remote: ")),
				"If there is a proxy before Redis, connect without it, or set PollOnly in all processes.")
		}
	}
	return fine
}

// mayNotNotify says which permissions are missing.
func (f *facts) mayNotNotify(channels bool, rights []string) answer {
	user, pattern := cmp.Or(f.user, "default"), "&"+f.prefix+":*"
	var what []string
	for _, right := range rights {
		what = append(what, strings.ToUpper(right[1:]))
	}
	unsure := len(rights) == len(f.notices) // a command that is not permitted is refused before its channel is looked at
	if channels {
		what = append(what, "the channels "+pattern[1:])
	}
	if channels || unsure {
		rights = append(rights, pattern)
	}
	fix := []string{"ACL SETUSER " + user + " " + strings.Join(rights, " ")}
	if unsure {
		fix = append(fix, "If Redis refuses "+pattern+", the user has all channels already: leave it out.")
	}
	return wrong(fmt.Sprintf("The user %s may not use %s.", user, strings.Join(what, ", ")), fix...)
}
