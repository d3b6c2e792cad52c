package doctor

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/screen"
)

// memoryShare is how full a Redis may be, in per cent.
const memoryShare = 80

func checkEviction(f *facts, _ Options) answer {
	policy, ok := f.field("maxmemory_policy")
	if !ok {
		if policy, ok = f.setting("maxmemory-policy"); !ok {
			return f.noInfo()
		}
	}
	if policy == "noeviction" || policy == "volatile-ttl" {
		return fine
	}
	a := wrong(fmt.Sprintf("maxmemory-policy is %s.", policy), "CONFIG SET maxmemory-policy noeviction")
	if most, ok := f.number("maxmemory"); ok && most > 0 {
		return a.as(Error)
	}
	return a.because("Redis evicts counters that still count as soon as it has a maxmemory and that is used up: their limits begin anew.")
}

func checkMemory(f *facts, _ Options) answer {
	used, ok := f.number("used_memory")
	most, ok2 := f.number("maxmemory")
	full := len(f.failed("oom")) > 0
	if !full && (!ok || !ok2) {
		return f.noInfo()
	}
	fix := "CONFIG SET maxmemory " + fmt.Sprint(max(2*used, 64<<20))
	switch {
	case full:
		return wrong(fmt.Sprintf("Redis is out of memory: %s of %s are used.", screen.Bytes(used), screen.Bytes(most)), fix).as(Error)
	case most > 0 && used >= most/100*memoryShare:
		return wrong(fmt.Sprintf("%s of maxmemory %s are used, more than %d %%.", screen.Bytes(used), screen.Bytes(most), memoryShare), fix)
	case most > 0:
		return fine
	}
	rss, ok := f.number("used_memory_rss")
	machine, ok2 := f.number("total_system_memory")
	if ok && ok2 && machine > 0 && rss >= machine/100*memoryShare {
		return wrong(fmt.Sprintf("%s of the %s of the machine are used, and there is no maxmemory: the system may end Redis.", screen.Bytes(rss), screen.Bytes(machine)),
			// First the memory: a maxmemory below what is used refuses all writes.
			"Give the machine more memory, or this Redis less data, and then: CONFIG SET maxmemory "+fmt.Sprint(machine/100*memoryShare))
	}
	return fine
}

func checkPersistence(f *facts, _ Options) answer {
	aof, ok := f.field("aof_enabled")
	if !ok {
		return f.noInfo()
	}
	if aof == "1" {
		return fine
	}
	save, ok := f.setting("save")
	switch fix := "CONFIG SET appendonly yes"; {
	case !ok:
		return f.noConfig()
	case save == "":
		return wrong("Nothing is written to disk: appendonly is no, and there is no save.", fix)
	default:
		return wrong(fmt.Sprintf("Only snapshots are written to disk (save %s).", save), fix).as(Note).because(
			"A restart forgets what was counted since the last one. Nodes of package hybrid report it again; package remote does not, and those limits begin anew.")
	}
}

func checkSnapshot(f *facts, _ Options) answer {
	rdb, ok := f.field("rdb_last_bgsave_status")
	aof, ok2 := f.field("aof_last_write_status")
	misconf := len(f.failed("misconf")) > 0
	fix := "Look at the disk and the log of Redis, and then: BGSAVE"
	switch {
	case misconf:
		return wrong("The last snapshot has failed, and Redis refuses writes for that.", fix, "CONFIG SET stop-writes-on-bgsave-error no").as(Error)
	case !ok || !ok2:
		return f.noInfo()
	case aof != "ok":
		return wrong("The last write to the append-only file has failed.", "Look at the disk and the log of Redis.")
	case rdb != "ok":
		return wrong("The last snapshot has failed.", fix)
	}
	return fine
}

func checkFsync(f *facts, _ Options) answer {
	aof, ok := f.field("aof_enabled")
	if ok && aof == "0" {
		return fine
	}
	switch value, ok := f.setting("appendfsync"); {
	case !ok:
		return f.noConfig()
	case value == "always":
		return wrong("appendfsync is always.", "CONFIG SET appendfsync everysec")
	}
	return fine
}

func checkReplicas(f *facts, _ Options) answer {
	refuses := len(f.failed("noreplicas")) > 0
	least, ok := f.settingNumber("min-replicas-to-write")
	good, connected := f.number("min_slaves_good_slaves") // said only if some are wanted
	switch {
	case !refuses && f.info["role"] == "slave":
		return fine // it takes no writes anyway
	case !refuses && !ok:
		return f.noConfig()
	case !refuses && (least == 0 || !connected || good >= least):
		return fine
	}
	return wrong(fmt.Sprintf("min-replicas-to-write is %d, and %d replicas are connected and follow closely.", least, good),
		"Bring a replica back.", fmt.Sprintf("CONFIG SET min-replicas-to-write %d", good))
}
