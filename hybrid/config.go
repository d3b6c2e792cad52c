package hybrid

// coreConfig is what the core needs of [Options], all times in nanoseconds.
type coreConfig struct {
	interval, maxLag           int64
	heartbeat                  int64
	linger                     int64
	minBackoff, maxBackoff     int64
	retry, quarantine          int64
	timeout                    int64 // of an exchange
	maxBatch, maxPipes         int
	shardsPerPipe, resyncPipe  int
	degradeAfter               int
	expectedNodes              int64
	fallback                   Fallback
	resyncPaceMin, resyncRange int64
}
