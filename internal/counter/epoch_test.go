package counter

// alone is the epoch of leases that are made without a counter.
var alone = new(epoch)
