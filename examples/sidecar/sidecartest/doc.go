// Package sidecartest tests the files of the directory above: the manifest with the types of
// Kubernetes, the configuration of Envoy with those of Envoy, the rules with package rules, and
// all of them together with the server, a Redis, and a client in Python.
//
// It is a module of its own, and not in the workspace: nobody else is to have Kubernetes among
// the dependencies. Run it with GOWORK=off.
package sidecartest
