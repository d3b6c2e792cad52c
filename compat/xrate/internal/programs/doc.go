// Package programs is a program as it was with golang.org/x/time/rate, and as it is with xrate. Its tests run
// both.
package programs
