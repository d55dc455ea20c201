package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/internal/command"
)

// ownCmd is `pailfs-kube own`, with which the agent's pod begins: a directory of the
// host is root's, and the agent is not root.
type ownCmd struct {
	Directory string `arg:""`
	UID       int    `arg:""`
}

// Run gives the directory to the user, alone. It needs CAP_CHOWN where that is not so
// yet, and no other capability.
func (c *ownCmd) Run(command.Program) error {
	var st unix.Stat_t
	if err := unix.Lstat(c.Directory, &st); err != nil {
		return fmt.Errorf("look at %s: %w", c.Directory, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return command.Usage(fmt.Errorf("%s is not a directory", c.Directory))
	}
	if int(st.Uid) == c.UID {
		return nil
	}
	// The mode while it is root's still: the one of others is not root's to change.
	if err := os.Chmod(c.Directory, 0o755); err != nil {
		return err
	}
	return os.Lchown(c.Directory, c.UID, -1)
}
