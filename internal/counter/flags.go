package counter

// flags are the state of a counter towards the reconciler. They are written under the lock
// of the counter.
type flags uint16

const (
	outdated     flags = 1 << iota // the view is to be fetched again, however fresh it is
	inNormal                       // in the normal queue of the reconciler, not collected yet
	inUrgent                       // in its urgent queue
	inFlight                       // units (or a question) were sent and are not acknowledged
	raising                        // the authority has lost what we know
	quarantined                    // the authority's copy of the key is broken
	retryPlanned                   // quarantined, and due to be asked again
	voided                         // what is in flight was sent before a reset that we know of
	denied                         // the latest check was refused by what the authority has answered
	byNotice                       // the refusal that is about to be granted rests on a notice
	hurried                        // the next urgent report does not linger: other nodes may begin at the same instant
	pressing                       // urgent, and twice as many units wait as make a report urgent
	listed                         // in the urgent queue of the reconciler, and counted there once
	stacked                        // in the urgent stack of the link: the reconciler has not seen it yet
)
