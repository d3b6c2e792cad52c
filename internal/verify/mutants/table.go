package main

import "slices"

// table returns all mutants: which test catches which.
func table() []mutant {
	return slices.Concat(
		onceMutants, slowMutants, serverMutants, viewMutants, syncMutants, outageMutants, beatMutants, callMutants, pathMutants, leaseMutants, grantMutants, indexMutants, memoryMutants, bucketMutants, generationMutants, refundMutants, clockMutants, scriptMutants,
		memberMutants, noticeMutants, companyMutants, announceMutants,
		misuseMutants, conflictMutants, clientMutants, permissionMutants, logMutants,
		debtMutants, chargeMutants, combinedMutants, exemptMutants, exactMutants, distanceMutants,
		fleetMutants, windowMutants, figureMutants,
		httpMutants, grpcMutants,
		rulesMutants, exactRuleMutants, calendarMutants, adminMutants, envoyMutants, respMutants, serveMutants,
	)
}

// sim is the simulator on so many seeds.
func sim(seeds int) check { return check{"internal/sim", "TestSim", seeds} }

// simExact is the simulator with exact calls.
func simExact(seeds int) check { return check{"internal/sim", "TestSimExact", seeds} }

// simScripts is the simulator with the real scripts beside the model.
func simScripts(seeds int) check { return check{"internal/sim", "TestSimScripts", 100 * seeds} }

// simRealScripts is the same on a redis-server.
func simRealScripts(seeds int) check {
	return check{"internal/sim", "TestSimRealScripts", 20 * seeds}
}

func hybrid(test string) check     { return check{"hybrid", test, 0} }
func simulated(test string) check  { return check{"internal/sim", test, 0} }
func reconcile(test string) check  { return check{"internal/reconcile", test, 0} }
func local(test string) check      { return check{"local", test, 0} }
func tables(test string) check     { return check{"internal/table", test, 0} }
func escapes(test string) check    { return check{"internal/escape", test, 0} }
func keyhashes(test string) check  { return check{"internal/keyhash", test, 0} }
func counters(test string) check   { return check{"internal/counter", test, 0} }
func ariths(test string) check     { return check{"internal/arith", test, 0} }
func algorithms(test string) check { return check{"internal/algorithm", test, 0} }
func rulenames(test string) check  { return check{"internal/rulenames", test, 0} }
func redisstore(test string) check { return check{"internal/redisstore", test, 0} }
func remotely(test string) check   { return check{"remote", test, 0} }
func tallies(test string) check    { return check{"internal/tally", test, 0} }
func words(test string) check      { return check{"limit", test, 0} }
func clocks(test string) check     { return check{"clock", test, 0} }
func httplimit(test string) check  { return check{"adapter/httplimit", test, 0} }
func admin(test string) check      { return check{"adapter/adminlimit", test, 0} }
func grpclimit(test string) check  { return check{"adapter/grpclimit", test, 0} }
func rangetable(test string) check { return check{"adapter/internal/ranges", test, 0} }
func rulesfile(test string) check  { return check{"adapter/rules", test, 0} }
func serve(test string) check      { return check{"cmd/hybridlimit/internal/server", test, 0} }
func rls(test string) check        { return check{"cmd/hybridlimit/internal/server/rls", test, 0} }
func checks(test string) check     { return check{"cmd/hybridlimit/internal/server/check", test, 0} }
func resp(test string) check       { return check{"cmd/hybridlimit/internal/server/resp", test, 0} }
func cli(test string) check        { return check{"cmd/hybridlimit", test, 0} }
