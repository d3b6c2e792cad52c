package hybrid

import "github.com/hybridlimit/hybridlimit/internal/table"

type quarantined struct {
	c  *table.Counter
	at int64
}
