// Package inspect looks at what is kept in Redis, for tools: it finds counters, takes their
// names apart and asks many of them at once.
//
// Errors begin with "remote: ", the package that users know.
package inspect
