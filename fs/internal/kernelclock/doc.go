// Package kernelclock tells the time as the kernel stamps files with it.
package kernelclock
