// Package ops is what operators ask a server: is it alive, is it ready, how is it doing.
//
//	/         what else is here
//	/healthz  200 for as long as the process answers
//	/readyz   200 if it should get traffic, else 503; the body says why
//	/metrics  for Prometheus
//	/admin/   a page for people, see package adminlimit
//
// A server whose Redis is away is ready: it decides by its fallback policy, and another
// server would not know more.
package ops
