package main

// envoyMutants break the answers for Envoy.
var envoyMutants = []mutant{
	{
		name:   "one-hit-each",
		breaks: "hits_addend is ignored.",
		file:   "cmd/hybridlimit/internal/server/rls/decide.go",
		old:    `n = max(1, uint64(req.GetHitsAddend()))`,
		new:    `n = 1`,
		by:     rls("TestHits"),
	},
	{
		name:   "the-last-descriptor-decides",
		breaks: "A request is admitted although one of its descriptors is over its limit.",
		file:   "cmd/hybridlimit/internal/server/rls/service.go",
		old:    `if st.GetCode() == ratelimit.RateLimitResponse_OVER_LIMIT {`,
		new:    `if i == len(asked)-1 {`,
		by:     rls("TestARefusedRequestCountsNowhere"),
	},
	{
		name:   "refused-and-charged",
		breaks: "A request that is refused counts for those of its descriptors that would have admitted it.",
		file:   "cmd/hybridlimit/internal/server/rls/decide.go",
		old:    `case s.o.ChargeRefused:`,
		new:    `case s.o.ChargeRefused, len(asked) > 1:`,
		by:     rls("TestARefusedRequestCountsNowhere"),
	},
	{
		name:   "a-second-too-early",
		breaks: "Retry-After is cut to whole seconds: who obeys it is refused again.",
		file:   "cmd/hybridlimit/internal/server/rls/status.go",
		old:    `(tightest.until() + time.Second - 1) / time.Second`,
		new:    `tightest.until() / time.Second`,
		by:     rls("TestRetryAfterIsEnough"),
	},
	{
		name:   "a-look-at-old-news",
		breaks: "Keys that are only looked at seem unused, however much other servers count.",
		file:   "cmd/hybridlimit/internal/server/rls/decide.go",
		old:    "\t\t\ts.o.Look(q.key, q.limit.Rule)\n",
		new:    "",
		by:     rls("TestLooksAreTold"),
	},
}

// respMutants break the answers for Redis clients, and the bounds of what they send.
var respMutants = []mutant{
	{
		name:   "again-a-second-too-early",
		breaks: "A client that waits as long as CL.THROTTLE says is refused again.",
		file:   "cmd/hybridlimit/internal/server/resp/throttle.go",
		old:    "if n, ok := res.RetryAfterSeconds(); ok {\n\t\t\tretry = int64(n)",
		new:    "if _, ok := res.RetryAfterSeconds(); ok {\n\t\t\tretry = int64(res.RetryAfter / time.Second)",
		by:     resp("TestThrottleSaysLongEnoughToWait"),
	},
	{
		name:   "one-connection-more",
		breaks: "There are more connections than allowed.",
		file:   "cmd/hybridlimit/internal/server/resp/listener.go",
		old:    `len(s.conns) >= s.o.MaxConns`,
		new:    `len(s.conns) > s.o.MaxConns`,
		by:     resp("TestNoMoreConnectionsThanAllowed"),
	},
	{
		name:   "commands-without-end",
		breaks: "A client decides how much memory its command takes.",
		file:   "cmd/hybridlimit/internal/server/resp/frame.go",
		old:    `f.size > maxCommand {`,
		new:    `f.size < 0 {`,
		by:     resp("TestFrameRefusesWhatIsTooLarge"),
	},
	{
		name:   "once-known-always-known",
		breaks: "A wrong password is as good as the right one that came before it.",
		file:   "cmd/hybridlimit/internal/server/resp/handshake.go",
		old:    `in.known = right &&`,
		new:    `in.known = in.known || right &&`,
		by:     resp("TestPassword"),
	},
	{
		name:   "hung-up-on",
		breaks: "A server that stops leaves commands that it has received without an answer.",
		file:   "cmd/hybridlimit/internal/server/resp/conn.go",
		old:    `_ = c.SetReadDeadline(wakeUp) // an`,
		new:    `_ = c.Conn.Close() // an`,
		by:     resp("TestStopAnswersWhatItHasReceived"),
	},
}

// serveMutants break hybridlimit serve as a whole, and the rest of the command line.
var serveMutants = []mutant{
	{
		name:   "not-ready-without-redis",
		breaks: "In an outage of Redis all servers are taken out of service, although they could decide.",
		file:   "cmd/hybridlimit/internal/server/ops/handler.go",
		old:    `Ready: true, Mode:`,
		new:    `Ready: state.Mode.String() != "degraded", Mode:`,
		by:     serve("TestOutage"),
	},
	{
		name:   "any-rule-will-do",
		breaks: "A rule that the limiter cannot decide by comes into force, and refuses everything.",
		file:   "cmd/hybridlimit/internal/server/server.go",
		old:    "\ts.o.Rules.Check = s.lim.CheckRule\n",
		new:    "",
		by:     serve("TestStartFails"),
	},
	{
		name:   "the-last-reports-are-lost",
		breaks: "What a server has admitted at last is never reported.",
		file:   "cmd/hybridlimit/internal/server/server.go",
		old:    `errs = append(errs, s.lim.Close(ctx))`,
		new:    `errs = append(errs, ctx.Err())`,
		by:     serve("TestStopReportsWhatIsPending"),
	},
	{
		name:   "requests-of-any-size",
		breaks: "A request for Envoy's service may be as large as gRPC allows.",
		file:   "cmd/hybridlimit/internal/server/server.go",
		old:    `grpc.MaxRecvMsgSize(maxMessage), `,
		new:    ``,
		by:     serve("TestRequestsAreBounded"),
	},
	{
		name:   "no-certificate-is-fine",
		breaks: "With --tls-client-ca a client without a certificate is served.",
		file:   "cmd/hybridlimit/certificates.go",
		old:    `config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert`,
		new:    `config.ClientCAs = x509.NewCertPool()`,
		by:     cli("TestServeWithTLS"),
	},
	{
		name:   "flags-are-mistaken",
		breaks: "--charge-refused is --shadow: nobody is refused.",
		file:   "cmd/hybridlimit/serve.go",
		old:    `ChargeRefused: c.ChargeRefused, Shadow: c.Shadow,`,
		new:    `ChargeRefused: c.Shadow, Shadow: c.ChargeRefused,`,
		by:     cli("TestServeFlags"),
	},
	{
		name:   "reset-of-another-rule",
		breaks: "reset of several keys uses the rule of the first for all.",
		file:   "cmd/hybridlimit/change.go",
		old:    `s.lim.Set(p.ctx, key, list[i], used)`,
		new:    `s.lim.Set(p.ctx, key, list[0], used)`,
		by:     cli("TestResetOfKeysWithRulesOfTheirOwn"),
	},
	{
		name:   "our-password-is-enough",
		breaks: "doctor takes a server for closed because its own user has a password, although the default user has none.",
		file:   "cmd/hybridlimit/internal/doctor/check_others.go",
		old:    `case o.Password && !f.open:`,
		new:    `case o.Password:`,
		by:     cli("TestDoctorFindsTheDefaultUser"),
	},
}
