package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// GroupName is what a [ReplicaSet] is called by its Sentinels.
	GroupName = "group"
	// sentinels is how many watch a ReplicaSet; a majority is needed to act.
	sentinels = 3
	// settleTimeout bounds the wait for servers that find each other.
	settleTimeout = 30 * time.Second
	// settleEvery is how often they are asked.
	settleEvery = 20 * time.Millisecond
	// nowhere is a port that refuses connections: nobody listens on tcpmux.
	nowhere = "1"
)

// sentinelConfig makes a Sentinel that finds a master down after 0.7 s without
// an answer, and begins anew if a fail-over has not worked out after 3 s. With
// much less a busy machine looks like a dead one.
const sentinelConfig = `sentinel monitor %[1]s 127.0.0.1 %[2]d 2
sentinel down-after-milliseconds %[1]s 700
sentinel failover-timeout %[1]s 3000
sentinel parallel-syncs %[1]s 1
`

// ReplicaSet is a master with a replica, watched by three Sentinels that
// promote the replica when the master is gone. All are child processes. Build
// one with [StartReplicaSet] or [LaunchReplicaSet].
type ReplicaSet struct {
	// Master and Replica are the servers by what they were at the beginning; a
	// fail-over does not exchange them here.
	Master, Replica *Server
	Sentinels       []*Server
}

// StartReplicaSet launches a ReplicaSet for the length of a test, see [Start].
func StartReplicaSet(tb testing.TB, args ...string) *ReplicaSet {
	tb.Helper()
	r, err := LaunchReplicaSet(Options{Args: args})
	need(tb, err)
	tb.Cleanup(r.Close)
	return r
}

// LaunchReplicaSet starts a ReplicaSet and waits until the replica has the
// master's data and every Sentinel knows both and the other Sentinels. The
// options are those of master and replica. The caller must Close it.
func LaunchReplicaSet(o Options) (*ReplicaSet, error) {
	r := new(ReplicaSet)
	if err := r.launch(o); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *ReplicaSet) launch(o Options) (err error) {
	// A replica that asks for the data gets them at once, not after the 5 s in
	// which others might ask too.
	o.Args = append([]string{"--repl-diskless-sync-delay", "0"}, o.Args...)
	if r.Master, err = Launch(o); err != nil {
		return err
	}
	o.Args = append(o.Args, "--replicaof", loopback+" "+strconv.Itoa(r.Master.port))
	if r.Replica, err = Launch(o); err != nil {
		return err
	}
	err = settle("the replica has no link to its master", func() bool { return r.Replica.linked() })
	for i := 0; err == nil && i < sentinels; i++ {
		var s *Server
		if s, err = launch(Options{}, fmt.Sprintf(sentinelConfig, GroupName, r.Master.port)); err == nil {
			r.Sentinels = append(r.Sentinels, s)
		}
	}
	if err != nil {
		return err
	}
	return settle("the Sentinels have not found each other", func() bool {
		for _, s := range r.Sentinels {
			if !s.watches(r.Replica) {
				return false
			}
		}
		return true
	})
}

// linked tells whether a replica is connected and has all data.
func (s *Server) linked() bool {
	info, err := s.Info("replication")
	return err == nil && info["master_link_status"] == "up"
}

// watches tells whether a Sentinel knows the replica and is in touch with all
// other Sentinels.
func (s *Server) watches(replica *Server) bool {
	if ok, err := s.text("SENTINEL", "CKQUORUM", GroupName); err != nil ||
		!strings.HasPrefix(ok, "OK "+strconv.Itoa(sentinels)+" ") {
		return false
	}
	reply, err := s.Do("SENTINEL", "REPLICAS", GroupName)
	list, _ := reply.([]any)
	if err != nil || len(list) != 1 {
		return false
	}
	about := table(list[0])
	return about["port"] == strconv.Itoa(replica.port) && about["flags"] == "slave" && about["master-link-status"] == "ok"
}

// table reads a list of names and values in turn.
func table(reply any) map[string]string {
	m := map[string]string{}
	list, _ := reply.([]any)
	for i := 0; i+1 < len(list); i += 2 {
		name, _ := list[i].(string)
		m[name], _ = list[i+1].(string)
	}
	return m
}

// settle waits until ok, or fails with what is wrong.
func settle(wrong string, ok func() bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("redistest: after %v %s", settleTimeout, wrong)
		case <-tick.C:
		}
	}
	return nil
}

// SentinelAddrs returns where clients ask for the master of [GroupName].
func (r *ReplicaSet) SentinelAddrs() (addrs []string) {
	for _, s := range r.Sentinels {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// CutReplication ends the replication for good: what the master is told from
// now on, and acknowledges, is lost if the replica is promoted. The Sentinels
// would notice after about 8 s and mend it.
func (r *ReplicaSet) CutReplication() error {
	_, err := r.Replica.Do("REPLICAOF", loopback, nowhere)
	return err
}

// AwaitReplication waits until a replica has all that its master knew when it
// was called.
func AwaitReplication(master, replica *Server) error {
	info, err := master.Info("replication")
	if err != nil {
		return err
	}
	want, err := strconv.ParseInt(info["master_repl_offset"], 10, 64)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	return settle("the replica lags behind", func() bool {
		info, err := replica.Info("replication")
		got, bad := strconv.ParseInt(info["slave_repl_offset"], 10, 64)
		return err == nil && bad == nil && got >= want
	})
}

// FailOver has the Sentinels promote the replica although nothing is wrong, as
// an operator does before maintenance. It does not wait. The old master goes
// on as one, until they demote it about 10 s later.
func (r *ReplicaSet) FailOver() error {
	_, err := r.Sentinels[0].Do("SENTINEL", "FAILOVER", GroupName)
	return err
}

// Demote makes a server that was master before a fail-over a replica of the
// new one, as the Sentinels themselves do about 10 s after it has come back.
// Clients' connections stay.
func Demote(old, master *Server) error {
	if old == master {
		return errors.New("redistest: a server cannot be its own replica")
	}
	_, err := old.Do("REPLICAOF", loopback, strconv.Itoa(master.port))
	return err
}

// Close kills all servers, frozen or not.
func (r *ReplicaSet) Close() {
	for _, s := range append([]*Server{r.Master, r.Replica}, r.Sentinels...) {
		if s != nil {
			s.Close()
		}
	}
}
