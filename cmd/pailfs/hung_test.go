package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/fs/mounttest"
)

// TestCommandsEndAtAMountThatHangs: they tell, and their processes are gone.
func TestCommandsEndAtAMountThatHangs(t *testing.T) {
	at := mounttest.Hung(t, mountpoint.Type, "oss://hung")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"status":          {[]string{"status", "--timeout=200ms", at}, "does not answer: wait, or end it with pailfs umount --force " + at},
		"status below it": {[]string{"status", "--timeout=200ms", filepath.Join(at, "dir")}, "does not answer"},
		"umount":          {[]string{"umount", at}, "does not answer: wait, or end it with pailfs umount --force " + at},
		"flush":           {[]string{"flush", "--timeout=100ms", at}, "given up: the daemon does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if o := programtest.Run(t, programtest.Environ(), c.args...); o.Code != 1 || !strings.Contains(o.Stderr, c.want) {
				t.Errorf("%v: exit code %d, %q, want something of %q", c.args, o.Code, o.Stderr, c.want)
			}
		})
	}
}

// A question is a process of its own: where fifty others wait for a processor that takes longer
// than the five seconds that a mount has to answer statfs.
func TestABusyDaemonHasTimeToAnswerUmount(t *testing.T) {
	if got := (&umountCmd{}).patience(); got < time.Minute {
		t.Errorf("it has %v", got)
	}
	if got := (&umountCmd{Force: true}).patience(); got != mountpoint.Patience {
		t.Errorf("by force it has %v", got)
	}
}
