package mountpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// RaiseReadAhead sets the kernel's readahead of the mount at path and returns the
// value in force, with a reason if it is not the one wanted. Without it a
// sequential reader gets 128 KiB for every round trip to us.
func RaiseReadAhead(path string, kib int) (inForce int, reason string) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Sprintf("stat mount point: %v", err)
	}
	knob := fmt.Sprintf("/sys/class/bdi/%d:%d/read_ahead_kb", unix.Major(st.Dev), unix.Minor(st.Dev))
	if err := os.WriteFile(knob, []byte(strconv.Itoa(kib)), 0); err != nil {
		reason = err.Error()
	}
	text, err := os.ReadFile(knob)
	if err != nil {
		return 0, err.Error()
	}
	inForce, err = strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, err.Error()
	}
	return inForce, reason
}
