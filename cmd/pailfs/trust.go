package main

import (
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/pailfs/pailfs/prefetch/control"
)

// sameProcessNamespace reports whether a caller of the control channel lives in the
// daemon's PID namespace. Root of a container that shows the mount has the user
// id of root, but may not unmount it for everybody. A caller from outside has no
// process id here; it can signal the daemon instead. The caller waits for the
// answer, so its id is not another's meanwhile.
//
// status has one NSpid for each namespace from that of /proc down to the process's
// own, proc_pid_status(5). Unlike the links in ns it is there for everybody to
// read: those of a process with more capabilities are not.
func sameProcessNamespace(c control.Caller) bool {
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

// canonicalEndpoint returns one spelling for all that mean the same service, for
// what must not depend on it: the same objects are found in the cache however the
// endpoint is written. The scheme does not take part.
func canonicalEndpoint(endpoint string) string {
	text := strings.TrimSpace(endpoint)
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return endpoint
	}
	host, port := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), u.Port()
	switch {
	case port == "", port == "80" && u.Scheme == "http", port == "443" && u.Scheme == "https":
		return host
	}
	return host + ":" + port
}
