// Package sim runs whole fleets of limiters in virtual time, from a seed that draws the load and the
// faults, and checks after each step what is promised. It is all in its tests.
package sim
