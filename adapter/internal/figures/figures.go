// Package figures names what a hybrid limiter exports as metrics, for the adapters of metric
// systems: the same names, labels and meanings in each.
package figures

import (
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
)

// Exchange is the histogram of how long exchanges took, [inside.Figures].Exchanges.
const (
	Exchange     = "hybridlimit_exchange_duration_seconds"
	ExchangeHelp = "How long exchanges with Redis took that were answered in full: batches of reports and heartbeats."
)

// Metrics returns all metrics but the histogram.
func Metrics() []Metric {
	return []Metric{
		{"hybridlimit_decisions_total", "Checks by rule, outcome (allowed, denied) and what they rest on (source: synced, unsynced, degraded, local, remote; of refusals also notice).", true, []string{"rule", "outcome", "source"}, decisions},
		{"hybridlimit_dry_run_refusals_total", "Checks that were let pass only because the rule is a dry run.", true, []string{"rule"}, dryRuns},
		{"hybridlimit_invalid_checks_total", "Checks that cannot be decided, all denied: a negative number of units, or a rule that cannot be used.", true, []string{"rule"}, invalid},
		{"hybridlimit_exempt_checks_total", "Checks that were not made, because nothing limits who asks.", true, []string{"rule"}, exempt},
		{"hybridlimit_rule_conflicts_total", "Uses of a rule after another one of its name that counts differently.", true, nil, count(func(s *Snapshot) uint64 { return s.Conflicts })},
		{"hybridlimit_rebuilt_rules_total", "Uses of a rule after another one that is equal: it is built anew, and such a check is slow.", true, nil, count(func(s *Snapshot) uint64 { return s.Rebuilt })},

		{"hybridlimit_exact_asked_total", "Checks by exact rules that have asked Redis.", true, nil, count(func(s *Snapshot) uint64 { return s.ExactAsked })},
		{"hybridlimit_exact_failed_total", "Checks by exact rules that Redis has not decided: the caller got an error.", true, nil, count(func(s *Snapshot) uint64 { return s.ExactFailed })},

		{"hybridlimit_admitted_units_total", "Units admitted. Each is booked, expired, forgiven, overflowed, withdrawn, or pending.", true, nil, units(func(s *Snapshot) int64 { return s.AdmittedUnits })},
		{"hybridlimit_booked_units_total", "Admitted units that Redis has booked.", true, nil, units(func(s *Snapshot) int64 { return s.BookedUnits })},
		{"hybridlimit_expired_units_total", "Admitted units that counted no more when Redis could be reached.", true, nil, units(func(s *Snapshot) int64 { return s.ExpiredUnits })},
		{"hybridlimit_forgiven_units_total", "Admitted units of an outage or of charges above MaxDebt, which Redis has not booked.", true, nil, units(func(s *Snapshot) int64 { return s.ForgivenUnits })},
		{"hybridlimit_overflow_units_total", "Admitted units whose key had to leave memory before they were reported.", true, nil, units(func(s *Snapshot) int64 { return s.OverflowUnits })},
		{"hybridlimit_withdrawn_units_total", "Admitted units that were handed back or reset before they were reported.", true, nil, units(func(s *Snapshot) int64 { return s.WithdrawnUnits })},
		{"hybridlimit_refunded_units_total", "Units handed back, reported or not.", true, nil, units(func(s *Snapshot) int64 { return s.RefundedUnits })},
		{"hybridlimit_unreturned_units", "Units that were to be handed back and were not: expired, unknown, or before a reservation that waits.", false, nil, units(func(s *Snapshot) int64 { return s.UnreturnedUnits })},
		{"hybridlimit_charged_units_total", "Admitted units that were charged without a decision.", true, nil, units(func(s *Snapshot) int64 { return s.ChargedUnits })},
		{"hybridlimit_cancelled_units_total", "Admitted units whose Wait ended with an error, or whose reservation was cancelled.", true, nil, units(func(s *Snapshot) int64 { return s.CancelledUnits })},
		{"hybridlimit_refunds_given_up_total", "Refunds that were not sent again after Redis had lost data.", true, nil, count(func(s *Snapshot) uint64 { return s.RefundsGivenUp })},
		{"hybridlimit_pending_units", "Admitted units that wait to be reported, or are under way.", false, nil, units(func(s *Snapshot) int64 { return s.PendingUnits })},
		{"hybridlimit_oldest_pending_seconds", "How long ago the oldest pending unit was admitted; 0: there is none.", false, nil, seconds(func(s *Snapshot) time.Duration { return s.OldestPending })},
		{"hybridlimit_overshoot_units", "The most units by which Redis has reported a key above its limit, since the start.", false, nil, units(func(s *Snapshot) int64 { return s.Overshoot })},

		{"hybridlimit_keys", "Keys in memory.", false, nil, units(func(s *Snapshot) int64 { return s.Keys })},
		{"hybridlimit_queued_keys", "Keys that wait until they are reported, or asked for.", false, nil, units(func(s *Snapshot) int64 { return s.QueuedKeys })},
		{"hybridlimit_quarantined_keys", "Keys that Redis cannot use now, because another program has written to them.", false, nil, units(func(s *Snapshot) int64 { return s.QuarantinedKeys })},
		{"hybridlimit_evictions_total", "Keys evicted from memory.", true, nil, count(func(s *Snapshot) uint64 { return s.Evictions })},
		{"hybridlimit_overflow_decisions_total", "Decisions of keys that found no room in memory.", true, nil, count(func(s *Snapshot) uint64 { return s.Overflow })},
		{"hybridlimit_remembered_keys", "Keys that have left memory and are remembered.", false, nil, units(func(s *Snapshot) int64 { return s.Remembered })},
		{"hybridlimit_displaced_keys_total", "Remembered keys that were forgotten although their units still counted.", true, nil, count(func(s *Snapshot) uint64 { return s.Displaced })},

		{"hybridlimit_batches_total", "Script calls with reports, including those sent again.", true, nil, count(func(s *Snapshot) uint64 { return s.Batches })},
		{"hybridlimit_resent_batches_total", "Script calls sent again, because there was no answer or data was lost.", true, nil, count(func(s *Snapshot) uint64 { return s.ResentBatches })},
		{"hybridlimit_reported_keys_total", "Keys in script calls.", true, nil, count(func(s *Snapshot) uint64 { return s.KeysSynced })},
		{"hybridlimit_heartbeats_total", "Heartbeats and probes sent.", true, nil, count(func(s *Snapshot) uint64 { return s.Heartbeats })},
		{"hybridlimit_behind_seconds", "How long reports in the latest script call had waited after they were due.", false, nil, seconds(func(s *Snapshot) time.Duration { return s.Behind })},
		{"hybridlimit_exchange_last_seconds", "How long the latest exchange took that was answered.", false, nil, seconds(func(s *Snapshot) time.Duration { return s.Exchanges.Last })},
		{"hybridlimit_exchange_max_seconds", "How long the slowest exchange took that was answered, since the start.", false, nil, seconds(func(s *Snapshot) time.Duration { return s.Exchanges.Max })},
		{"hybridlimit_exchange_failures_total", "Exchanges with Redis that failed, by reason.", true, []string{"reason"}, failures},
		{"hybridlimit_last_success_timestamp_seconds", "When the latest exchange ended that was answered. Missing until there is one.", false, nil, lastSuccess},

		{"hybridlimit_notices_sent_total", "Notices published: that a key is used up, or has room again.", true, nil, count(func(s *Snapshot) uint64 { return s.NoticesSent })},
		{"hybridlimit_notices_heard_total", "Notices of other nodes that have arrived.", true, nil, count(func(s *Snapshot) uint64 { return s.NoticesHeard })},
		{"hybridlimit_notices_missed_total", "Messages with notices that came faster than the node can handle them, and were dropped.", true, nil, count(func(s *Snapshot) uint64 { return s.NoticesMissed })},
		{"hybridlimit_notices_late_total", "Notices that had to wait, because Redis delivers 20,000 messages a second at most.", true, nil, count(func(s *Snapshot) uint64 { return s.NoticesLate })},
		{"hybridlimit_notices_down", "1 while notices of other nodes do not arrive although Redis answers, or cannot be published. 0 with PollOnly.", false, nil, yes(func(s *Snapshot) bool { return s.State.NoticesDown != "" })},

		{"hybridlimit_mode", "1 for the mode that the limiter is in, 0 for the others.", false, []string{"mode"}, modes},
		{"hybridlimit_degraded", "1 while Redis, or a part of it, cannot be reached, so that the fallback decides.", false, nil, yes(func(s *Snapshot) bool { return s.State.Mode == hybrid.Degraded })},
		{"hybridlimit_nodes", "Live nodes, this one included, as heard of last.", false, nil, units(func(s *Snapshot) int64 { return int64(s.State.Nodes) })},
		{"hybridlimit_shards_down", "Shards that are cut off.", false, nil, units(func(s *Snapshot) int64 { return int64(s.State.Down) })},
		{"hybridlimit_state_changes_total", "Changes of the mode.", true, nil, count(func(s *Snapshot) uint64 { return s.StateChanges })},

		{"hybridlimit_data_losses_total", "Losses of data in Redis that were noticed, per shard.", true, nil, count(func(s *Snapshot) uint64 { return s.Losses })},
		{"hybridlimit_rolled_back_keys_total", "Keys of which Redis answered less than before.", true, nil, count(func(s *Snapshot) uint64 { return s.RolledBackKeys })},
		{"hybridlimit_quarantines_total", "Times that a key could not be used in Redis.", true, nil, count(func(s *Snapshot) uint64 { return s.Quarantined })},
		{"hybridlimit_bad_replies_total", "Replies that contradict the protocol.", true, nil, count(func(s *Snapshot) uint64 { return s.BadReplies })},
		{"hybridlimit_renames_total", "Times that another process was seen to use the name of this node.", true, nil, count(func(s *Snapshot) uint64 { return s.Renames })},
		{"hybridlimit_layout_mismatches", "Other layouts that use the same Redis and prefix, with which no limit is shared.", false, nil, units(func(s *Snapshot) int64 { return s.Mismatches })},
		{"hybridlimit_hook_panics_total", "Panics recovered from callbacks and the logger.", true, nil, count(func(s *Snapshot) uint64 { return s.HookPanics })},
	}
}

// count reads one series without labels.
func count(of func(*Snapshot) uint64) func(*Snapshot, Add) {
	return func(s *Snapshot, add Add) { add(float64(of(s))) }
}

func units(of func(*Snapshot) int64) func(*Snapshot, Add) {
	return func(s *Snapshot, add Add) { add(float64(of(s))) }
}

func seconds(of func(*Snapshot) time.Duration) func(*Snapshot, Add) {
	return func(s *Snapshot, add Add) { add(of(s).Seconds()) }
}

// yes reads 1 if something is so, else 0.
func yes(is func(*Snapshot) bool) func(*Snapshot, Add) {
	return func(s *Snapshot, add Add) {
		if is(s) {
			add(1)
		} else {
			add(0)
		}
	}
}

func modes(s *Snapshot, add Add) {
	for m := hybrid.LocalOnly; m <= hybrid.Closed; m++ {
		is := 0.0
		if m == s.State.Mode {
			is = 1
		}
		add(is, m.String())
	}
}

func failures(s *Snapshot, add Add) {
	for reason, n := range s.FailuresBy {
		add(float64(n), reason)
	}
}

func lastSuccess(s *Snapshot, add Add) {
	if !s.LastSuccess.IsZero() {
		add(float64(s.LastSuccess.UnixNano()) / 1e9)
	}
}
