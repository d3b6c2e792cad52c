// Package promtest tests the alert rules and the dashboard of package promlimit with the
// libraries of Prometheus, on what the collector answers while there is traffic and an outage.
//
// It is a module of its own, and not in the workspace: nobody else is to have Prometheus among
// the dependencies. Run it with GOWORK=off.
package promtest
