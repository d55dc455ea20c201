// Package errnos says what an error becomes for the program that caused it. It is the one
// place where that is decided.
package errnos
