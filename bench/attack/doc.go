// Command attack measures whether an attacker who uses up many keys locks out others, or gets more
// than a limit for keys that have been forgotten. The limiters have room for 65,536 keys and a
// quarter more, and the attacks use more keys than that.
//
//	go run ./bench/attack                 # the rows without Redis: two minutes
//	go run ./bench/attack -redis          # the same with Redis too, and those that need one: ten minutes
//	go run ./bench/attack -run 'once|day' # the rows whose name matches
//	go run ./bench/attack -scale 0.1      # a tenth of the keys, of the room and of the rates
//
// It prints a table in Markdown: a row for each attack, with what has come of honest keys and of
// keys that must be refused, the bounds, and whether they hold. The exit code is 1 if a bound is
// missed, 2 if the program could not run.
//
// # Guests
//
// Beside the attacker each row has guests: keys of others, in five groups.
//
//   - honest: 1,000 keys that have taken 2 of 10 before the attack. Each is asked for one unit every
//     tenth to sixth of the period, unless it is at its limit.
//   - new: 1,000 keys that appear at a random time of the attack, and behave like honest ones. They
//     stay for one period.
//   - used up: 1,000 keys that have taken 10 of 10 and are then asked for one unit as often.
//   - near, tried: 500 keys that have taken 8 of 10 and are then asked for 3 units as often.
//   - near, untouched: 500 keys that have taken 8 of 10 and are asked for 10 units once, at a random
//     time of the middle of the period.
//
// The last three groups take what they miss anew at the beginning of each period. The attack begins
// a twentieth of a period later. It lasts two periods, and the guests are watched for one more.
//
// # What is right
//
// A second limiter, the judge, has the same rule and clock and no attacker. It is given exactly those
// units of guests that the measured limiter has admitted. A check is above the limit if the judge,
// with the same history, refuses it. So the bucket more that a sliding window may admit is not held
// against a limiter. The share is that of the checks that the judge refuses. A refusal is wrong if the
// judge would have admitted the check; honest and new keys ask only then.
//
// # Rows
//
// A row is named after its attack: the period or the manner, the number of keys (in a second or at
// once), and the checks and units of each key. "At once" is within ten seconds.
//
//   - fault: once, and honest keys are then asked every 8 minutes, as in the report of the fault.
//   - minute, hour, day: new keys come steadily. The limits are sliding windows and, of a day, a quota.
//   - once: new keys come at once, at the beginning of each period.
//   - busy: the same keys come again and again, twice as often as honest ones.
//   - nodes: new keys come for 30 s on two nodes with a real Redis. The guests take the 30 s for the
//     period, so that they are asked often enough. "Starved" leaves the program one processor, for
//     which other work competes.
//   - unreported: a key gets its second unit 0.2 s after the first, while a report is due.
//   - away: Redis is away for the first ten minutes of each attack.
//
// A name that ends in redis is that of a row that there is without Redis too. Rows with an embedded
// Redis have a quarter of the keys, the room and the rates, because it is slow. The heap includes it.
//
// # Time
//
// Without Redis a manual clock goes from event to event. With Redis the rows run in a bubble of
// testing/synctest, around an embedded Redis: hours take seconds there too. Rows with two nodes run
// in real time on a real redis-server. Only secret hashes and the order of simultaneous events
// differ between two runs of one seed.
package main
