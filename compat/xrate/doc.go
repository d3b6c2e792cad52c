// Package xrate gives one key of a limiter of this project the methods of a [rate.Limiter] of
// golang.org/x/time/rate, so that programs which are written for that one share their limit with
// other processes.
//
//	lim, err := hybrid.New(rdb, hybrid.Options{})
//	…
//	limiter, err := xrate.New(lim, "api.example", "upstream", 10, 20, xrate.Options{}) // was rate.NewLimiter(10, 20)
//	…
//	if err := limiter.Wait(ctx); err != nil { … }
//
// A [Limiter] has all methods of a rate.Limiter, with the same parameters. Their results have the same
// types, except that a [Reservation] is one of this package. So a Limiter fits an interface such as
//
//	interface {
//		Allow() bool
//		Wait(context.Context) error
//		Limit() rate.Limit
//		SetLimit(rate.Limit)
//	}
//
// # What is different
//
//   - The bucket is that of a key and a name. All Limiters with the same key and name, in all processes that
//     the limiter below shares with, take their tokens from one bucket.
//   - The limiter below has one clock, and decides at the time of the call. A time that a caller gives to
//     [Limiter.AllowN] or [Limiter.ReserveN] is not used for that. If it is more than [MaxSkew] off that clock,
//     the call is denied and counted in [Limiter.Skewed].
//   - [Limiter.SetLimit] and [Limiter.SetBurst] hold for this Limiter: no other process learns of them. Tokens
//     that were used stay used.
//   - A rate of 0 admits nothing, as the documentation of rate.Limit says. A rate.Limiter admits its burst first.
//
// # What is not promised
//
// The numbers of a bucket are integers. A rate that is no simple fraction is rounded by less than one part in
// 10¹². A bucket that needs more than 100 years to fill has a smaller burst: as many tokens
// as come in that time. A burst of more than 1<<53 is one of 1<<53.
package xrate
