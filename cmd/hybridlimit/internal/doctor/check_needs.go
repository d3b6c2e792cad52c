package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hybridlimit/hybridlimit/limit"
)

// The lowest version that is supported, see docs/redis.md.
const (
	leastMajor = 6
	leastMinor = 2
)

func checkVersion(f *facts, _ Options) answer {
	text, ok := f.field("redis_version")
	if !ok {
		return f.noInfo()
	}
	parts := strings.Split(text+".0", ".")
	major, err := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	switch {
	case cmp.Or(err, err2) != nil:
		return cannotTell(fmt.Sprintf("the version %.20q is no number", text))
	case major < leastMajor, major == leastMajor && minor < leastMinor:
		return wrong(fmt.Sprintf("This is version %s; %d.%d or later is needed.", text, leastMajor, leastMinor), "Install Redis 6.2 or later, or Valkey.")
	}
	return fine
}

func checkCommands(f *facts, _ Options) answer {
	list := commandsOf(f.failed("unsupported"))
	if len(list) == 0 {
		return fine
	}
	what := fmt.Sprintf("This server does not know %s.", strings.Join(list, ", "))
	var fix []string
	for _, c := range list {
		fix = append(fix, "redis.conf: remove the line that begins with: rename-command "+c)
	}
	return wrong(what, fix...)
}

func commandsOf(list []trial) (names []string) {
	for _, t := range list {
		names = append(names, strings.ToUpper(t.command))
	}
	return names
}

func checkPermissions(f *facts, _ Options) answer { return f.mayNot(f.failed("noperm")) }

func checkTools(f *facts, _ Options) answer {
	denied := failed(f.tools, "noperm")
	if missing := commandsOf(failed(f.tools, "unsupported")); len(missing) > 0 {
		return wrong(fmt.Sprintf("This server does not know %s.", strings.Join(missing, ", ")), "Let nothing rename or forbid it.")
	}
	if f.mayNotSelect() {
		return fine
	}
	return f.mayNot(denied)
}

// mayNotSelect reports whether the user may not select the database: then nothing works, and
// checkPermissions says so.
func (f *facts) mayNotSelect() bool {
	return slices.ContainsFunc(f.failed("noperm"), func(t trial) bool { return t.denied() == "select" })
}

// denied returns the command that a user may not use: go-redis may have to send another one
// before it, such as SELECT.
func (t trial) denied() string {
	_, rest, _ := strings.Cut(t.err.Error(), "permissions to run the '")
	name, _, found := strings.Cut(rest, "'")
	if !found {
		return t.command
	}
	return name
}

// mayNot says which permissions are missing.
func (f *facts) mayNot(denied []trial) answer {
	if len(denied) == 0 {
		return fine
	}
	// A command that is not permitted is refused before its keys are looked at.
	keys, rights := false, []string{}
	for _, t := range denied {
		if text := t.err.Error(); strings.Contains(text, "key") && !strings.Contains(text, "command") {
			keys = true
		} else {
			rights = append(rights, "+"+t.denied())
		}
	}
	slices.Sort(rights)
	rights = slices.Compact(rights)
	user := cmp.Or(f.user, "default")
	fix, what := "ACL SETUSER "+user, []string{}
	if keys {
		fix += " ~" + f.prefix + ":*"
		what = append(what, fmt.Sprintf("the keys %s:*", f.prefix))
	}
	if len(rights) > 0 {
		fix += " " + strings.Join(rights, " ")
		what = append(what, strings.ToUpper(strings.ReplaceAll(strings.Join(rights, ", "), "+", "")))
	}
	return wrong(fmt.Sprintf("The user %s may not use %s.", user, strings.Join(what, ", ")), fix)
}

// checkScripts is about what is wrong with scripts and not with a command in them.
func checkScripts(f *facts, _ Options) answer {
	t := trial{"script", f.scripts}
	switch reason := t.reason(); {
	case reason == "" || len(f.failed(reason)) > 0:
		return fine
	case reason == "crossslot", reason == "clusterdown":
		return fine // checkClusterClient and checkClusterState say that
	}
	return wrong(fmt.Sprintf("A script fails: %.200s.", strings.TrimPrefix(f.scripts.Error(), "remote: ")), "Look at the log of Redis.")
}

func checkReplica(f *facts, _ Options) answer {
	role, ok := f.field("role")
	if !ok && len(f.failed("readonly")) == 0 {
		return f.noInfo()
	}
	if role != "slave" && len(f.failed("readonly")) == 0 {
		return fine
	}
	what, fix := "This is a replica.", "Connect to the master, or to its Sentinel (?master_name=)."
	if host := f.info["master_host"]; host != "" {
		what = fmt.Sprintf("This is a replica of %s:%s.", host, f.info["master_port"])
	}
	return wrong(what, fix)
}

func checkClusterClient(f *facts, o Options) answer {
	enabled, ok := f.field("cluster_enabled")
	switch {
	case !ok:
		return f.noInfo()
	case enabled == "1" && !o.Cluster:
		return wrong("This server is part of a Cluster, and the client is one of a single server.",
			"Use hybrid.RedisClusterOptions and a ClusterClient in the program, and --cluster here.")
	}
	return fine
}

func checkClusterState(f *facts, _ Options) answer {
	if f.info["cluster_enabled"] != "1" {
		return fine
	}
	state, ok := f.cluster["cluster_state"]
	if !ok {
		return cannotTell("CLUSTER INFO is not answered")
	}
	if state == "ok" {
		return fine
	}
	return wrong(fmt.Sprintf("The state of the Cluster is %s: %s of 16384 slots are served.", state, cmp.Or(f.cluster["cluster_slots_ok"], "some")),
		"redis-cli --cluster check "+f.name, "redis-cli --cluster fix "+f.name)
}

func checkCoverage(f *facts, _ Options) answer {
	if f.info["cluster_enabled"] != "1" {
		return fine
	}
	switch value, ok := f.setting("cluster-require-full-coverage"); {
	case !ok:
		return f.noConfig()
	case value != "no":
		return wrong("cluster-require-full-coverage is "+value+".", "CONFIG SET cluster-require-full-coverage no")
	}
	return fine
}

// reasons say what a write that fails means, where no other check does.
var reasons = map[string][2]string{
	"loading":    {"Redis is loading its data.", "Wait."},
	"masterdown": {"The link to the master is down.", "Connect to a master."},
	"busy":       {"A script does not end.", "SCRIPT KILL"},
	"timeout":    {"A command was not answered in time.", "See --timeout, and whether the server is overloaded."},
	"closed":     {"Redis closed the connection.", "Look at the log of Redis."},
}

func checkWrites(f *facts, _ Options) answer {
	for _, t := range f.tried {
		switch reason := t.reason(); reason {
		case "", "unsupported", "noperm", "readonly", "noreplicas", "oom", "misconf", "crossslot", "clusterdown":
			continue // other checks say more
		default:
			r, known := reasons[reason]
			if !known {
				r = [2]string{fmt.Sprintf("%s fails: %.200s.", strings.ToUpper(t.command), t.err), "Look at the log of Redis."}
			}
			return wrong(r[0], r[1])
		}
	}
	return fine
}

func checkDatabase(f *facts, _ Options) answer {
	switch {
	case f.dbErr != nil:
		return cannotTell("other databases cannot be looked at" + because(f.dbErr))
	case len(f.elseDB) == 0:
		return fine
	}
	return wrong(fmt.Sprintf("Limiters use database %d; this is database %d, where none are.", f.elseDB[0], f.db),
		fmt.Sprintf("Set DB: %d in the options of the clients that have %d, or --redis redis://%s/%d here.", f.elseDB[0], f.db, f.name, f.elseDB[0]))
}

func checkLayouts(f *facts, _ Options) answer {
	if f.fleetErr != nil {
		var key *limit.KeyError
		if !errors.As(f.fleetErr, &key) {
			return cannotTell("the list of layouts cannot be read" + because(f.fleetErr))
		}
		return wrong(fmt.Sprintf("The list of nodes is broken (%s): %s.", key.Reason, key.Key), "Find out who writes to that key, and DEL it.").because(
			"Nodes cannot count each other: each takes itself for alone, and in an outage admits a whole limit by itself.")
	}
	var others []string
	ours := len(f.fleet.Layouts) == 0
	for _, l := range f.fleet.Layouts {
		if l.Name == f.layout {
			ours = true
			continue
		}
		others = append(others, l.Name)
	}
	switch {
	case len(others) == 0:
		return fine
	case !ours && len(others) == 1:
		return wrong(fmt.Sprintf("All nodes use %s; this looks at %s.", others[0], f.layout), "Say --shards as the nodes have it.")
	case !ours:
		return wrong(fmt.Sprintf("Nodes use different layouts: %s.", strings.Join(others, " and ")), "Give all processes the same Shards, and the same version.")
	}
	return wrong(fmt.Sprintf("Nodes use %s besides %s.", strings.Join(others, " and "), f.layout), "Give all processes the same Shards, and the same version.")
}

// checkApplications finds rules of one name that count differently, as those of two applications
// do that have never heard of each other. It sees the algorithm alone: numbers are not in Redis.
func checkApplications(f *facts, _ Options) answer {
	if f.rulesErr != nil {
		return cannotTell("the counters cannot be listed" + because(f.rulesErr))
	}
	for _, name := range slices.Sorted(maps.Keys(f.rules)) {
		if list := f.rules[name]; len(list) > 1 {
			slices.Sort(list)
			return wrong(fmt.Sprintf("Rule %.40q has counters of different algorithms: %v and %v.", name, list[0], list[1]),
				"If several applications use this Redis, give each a KeyPrefix of its own.")
		}
	}
	return fine
}
