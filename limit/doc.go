// Package limit describes limits: a [Rule] says what is allowed, a [Result] what was
// decided, and the errors what was wrong with a call. The limiters of packages
// hybrid, local and remote take the same rules.
//
//	perUser := limit.Must(limit.PerMinute("api", 100))                    // 100 a minute
//	burst := limit.Must(limit.TokenBucket("uploads", 5, time.Second, 20)) // 20 at once, then 5 a second
//	perDay := limit.Must(limit.Quota("api per day", 5000, limit.Calendar{Unit: limit.Day}))
//
// Build a rule once and share it. Its name is a namespace: the same name and key are one
// counter, even if the limits differ, so customers can have different plans and plans can
// change. Several limits of one caller need several names. [JoinKey] makes one key of
// several parts. [ContextLimiter] is the interface for code that takes any limiter, and
// [WithContext] makes one of a limiter that answers from memory.
//
// The package decides nothing and keeps no state.
package limit
