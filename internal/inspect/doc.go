// Package inspect reads counters in Redis, for tools: it finds counters, parses their names
// and reads many of them at once.
//
// Errors begin with "remote: ", the package that users know.
package inspect
