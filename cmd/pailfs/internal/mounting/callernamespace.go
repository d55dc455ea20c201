package mounting

import (
	"fmt"
	"os"
	"strings"

	"github.com/pailfs/pailfs/prefetch/control"
)

// callerNamespace reports whether a caller of the control channel lives in the
// daemon's PID namespace. Root of a container that shows the mount has the user
// id of root, but may not unmount it for everybody. A caller from outside has no
// process id here; it can signal the daemon instead. The caller waits for the
// answer, so its id is not another's meanwhile.
//
// status has one NSpid for each namespace from that of /proc down to the process's
// own, proc_pid_status(5). Unlike the links in ns it is there for everybody to
// read: those of a process with more capabilities are not.
func callerNamespace(c control.Caller) bool {
	if c.PID == 0 {
		return false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.PID))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return len(strings.Fields(ids)) == 1
		}
	}
	return false
}
