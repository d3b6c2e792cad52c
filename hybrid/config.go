package hybrid

// coreConfig is what the core needs of [Options]. All times are in ns.
type coreConfig struct {
	interval, maxLag           int64 // SyncInterval, MaxLag
	heartbeat                  int64 // between two heartbeats
	linger                     int64 // how long an urgent report waits for others
	minBackoff, maxBackoff     int64 // between two probes
	retry                      int64 // before a failed flight is sent again, on average
	quarantine                 int64 // before a broken key is tried again
	timeout                    int64 // of an exchange
	maxBatch, farBatch         int   // keys in a flight, and in one to a server that is far away
	maxPipes                   int   // pipelines under way to a server
	shardsPerPipe, resyncPipe  int   // shards in a pipeline, and in one after an outage
	degradeAfter               int   // rounds of failed exchanges
	expectedNodes              int64
	notices                    bool // of keys that are used up are told
	single                     bool // all pipelines go to one server, so that notices may travel in them
	fallback                   Fallback
	resyncPaceMin, resyncRange int64 // pause between pipelines after an outage: a random time from min to min + range
}
