package fleet

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/redistest"
)

// Usage is what a server has used up.
type Usage struct {
	Processor time.Duration
	Commands  float64 // also those that scripts give
	Calls     float64 // of scripts, and messages that clients publish
	Bytes     float64 // in and out
}

// usageCommands is how many commands a Usage takes by itself.
const usageCommands = 3

// UsageOf returns what a server has used up so far.
func UsageOf(server *redistest.Server) (u Usage, err error) {
	info := map[string]string{}
	for _, section := range []string{"stats", "cpu", "commandstats"} {
		fields, err := server.Info(section)
		if err != nil {
			return u, err
		}
		maps.Copy(info, fields)
	}
	read := func(name string) (f float64) {
		if err == nil {
			f, err = strconv.ParseFloat(strings.TrimSpace(info[name]), 64)
		}
		return f
	}
	u.Commands = read("total_commands_processed")
	u.Bytes = read("total_net_input_bytes") + read("total_net_output_bytes")
	u.Processor = time.Duration((read("used_cpu_user") + read("used_cpu_sys")) * float64(time.Second))
	for _, name := range []string{"eval", "evalsha", "publish"} {
		value, used := info["cmdstat_"+name]
		calls := 0
		if _, scanErr := fmt.Sscanf(value, "calls=%d,", &calls); used && scanErr != nil {
			return u, fmt.Errorf("INFO commandstats says %q of %s: %w", value, name, scanErr)
		}
		u.Calls += float64(calls)
	}
	return u, err
}

// Since returns what was used up since an earlier Usage, less what the later one took.
func (u Usage) Since(before Usage) Usage {
	return Usage{u.Processor - before.Processor, u.Commands - before.Commands - usageCommands, u.Calls - before.Calls, u.Bytes - before.Bytes}
}
