// Package handles numbers what is open, for the kernel to name it by.
//
// It knows neither files nor directories, and closes nothing.
package handles
