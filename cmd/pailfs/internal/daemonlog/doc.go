// Package daemonlog opens the log of a daemon: a file that can be opened again after it was rotated,
// standard error, or syslog with the severity of each line.
package daemonlog
