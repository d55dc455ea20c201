package mounting

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Signals are the signals that a daemon obeys: SIGINT and SIGTERM stop it, SIGHUP
// opens the log file and the audit again. At a terminal SIGHUP says that the terminal is gone
// and stops it. SIGUSR1 says that the machine is about to go. SIGPIPE is ignored: a reader of our output that has gone must not
// end a file system.
type Signals struct {
	end    chan os.Signal
	reopen chan os.Signal
	drain  chan os.Signal
}

// NewSignals begins to take them. terminal says that the daemon runs at one.
func NewSignals(terminal bool) *Signals {
	s := &Signals{end: make(chan os.Signal, 4), reopen: make(chan os.Signal, 1), drain: make(chan os.Signal, 1)}
	signal.Notify(s.drain, unix.SIGUSR1)
	signal.Notify(s.end, unix.SIGINT, unix.SIGTERM)
	if terminal {
		signal.Notify(s.end, unix.SIGHUP)
	} else {
		signal.Notify(s.reopen, unix.SIGHUP)
	}
	signal.Ignore(unix.SIGPIPE)
	return s
}

// Stop takes them no more.
func (s *Signals) Stop() {
	signal.Stop(s.end)
	signal.Stop(s.reopen)
	signal.Stop(s.drain)
}
