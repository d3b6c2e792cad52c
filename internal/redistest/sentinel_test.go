package redistest

import (
	"testing"
	"time"
)

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("after 30 s still not: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func do(t *testing.T, s *Server, words ...string) any {
	t.Helper()
	reply, err := s.Do(words...)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// masterOf returns the port of the master as a Sentinel tells it.
func masterOf(t *testing.T, sentinel *Server) string {
	t.Helper()
	list, _ := do(t, sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", GroupName).([]any)
	if len(list) != 2 {
		t.Fatalf("a Sentinel says %v", list)
	}
	return list[1].(string)
}

// A master is killed: the replica becomes the master, with all data but what
// was written after the replication was cut.
func TestReplicaSetFailsOver(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the Sentinels")
	}
	t.Parallel()
	r := StartReplicaSet(t)
	if r.Master.Role() != "master" || r.Replica.Role() != "slave" {
		t.Fatalf("roles %q and %q", r.Master.Role(), r.Replica.Role())
	}
	do(t, r.Master, "SET", "a", "1")
	if err := AwaitReplication(r.Master, r.Replica); err != nil {
		t.Fatal(err)
	}
	if got := do(t, r.Replica, "GET", "a"); got != "1" {
		t.Errorf("the replica has %v", got)
	}
	if err := r.CutReplication(); err != nil {
		t.Fatal(err)
	}
	do(t, r.Master, "SET", "a", "2")
	r.Master.Kill()
	if r.Master.Role() != "" {
		t.Error("a dead server has a role")
	}
	eventually(t, "promoted", func() bool { return r.Replica.Role() == "master" })
	if got := do(t, r.Replica, "GET", "a"); got != "1" {
		t.Errorf("the new master has %v", got)
	}
	for _, s := range r.Sentinels {
		eventually(t, "told by all", func() bool { return masterOf(t, s) == portOf(r.Replica) })
	}
	dirs := []string{r.Master.dir, r.Sentinels[2].dir}
	r.Close()
	r.Close()
	wantGone(t, dirs...)
}

// A planned fail-over needs no fault; a frozen master that thaws is still one
// until it is demoted.
func TestReplicaSetDemotes(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the Sentinels")
	}
	t.Parallel()
	r := StartReplicaSet(t)
	if err := r.FailOver(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "promoted", func() bool { return r.Replica.Role() == "master" })
	r.Master.FreezeOrSkip(t)
	if err := r.Master.Thaw(); err != nil {
		t.Fatal(err)
	}
	do(t, r.Master, "SET", "a", "1") // the Sentinels leave it so for a while
	if err := Demote(r.Master, r.Replica); err != nil {
		t.Fatal(err)
	}
	eventually(t, "linked", r.Master.linked)
	if _, err := r.Master.Do("SET", "a", "2"); err == nil {
		t.Error("wrote to a replica")
	}
	if got := do(t, r.Master, "GET", "a"); got != nil {
		t.Errorf("the old master still has %v, which the new one never knew", got)
	}
	if Demote(r.Replica, r.Replica) == nil {
		t.Error("made a server its own replica")
	}
}
