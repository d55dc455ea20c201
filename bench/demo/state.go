package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// state is what is running, in a file, so that the next demo can end what this
// one could not.
type state struct {
	Mount     string `json:"mount"`
	ServerPID int    `json:"server_pid"`
	DaemonPID int    `json:"daemon_pid"`
}

const stateName = "running.json"

// dataDirs are the directories that hold nothing worth keeping.
var dataDirs = []string{"server", "disk", "client"}

func (c *Config) saveState(s state) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	if err := os.WriteFile(c.path(stateName), b, 0o644); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}

// endEarlier ends what an earlier demo left running in Out, and removes its
// data.
func (c *Config) endEarlier() error {
	b, err := os.ReadFile(c.path(stateName))
	if err == nil {
		var s state
		if err := json.Unmarshal(b, &s); err != nil {
			return fmt.Errorf("read %q: %w: remove it if no demo is running", c.path(stateName), err)
		}
		c.say("ending the earlier demo in %s", c.Out)
		if err := c.end(s); err != nil {
			return err
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read state: %w", err)
	}
	return c.removeData()
}

// end ends the processes of s if they are still those that were started here.
func (c *Config) end(s state) error {
	if err := unix.Unmount(s.Mount, unix.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("unmount the earlier demo's %q: %w", s.Mount, err)
	}
	for _, pid := range []int{s.DaemonPID, s.ServerPID} {
		if err := c.endProcess(pid); err != nil {
			return err
		}
	}
	return nil
}

// endProcess asks pid to end, and kills it if it does not. A process that does
// not name Out in its command line is another one by now.
func (c *Config) endProcess(pid int) error {
	out, err := filepath.Abs(c.Out)
	if err != nil {
		return fmt.Errorf("end process %d: %w", pid, err)
	}
	ours := func() bool {
		command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return pid > 0 && err == nil && bytes.Contains(command, []byte(out))
	}
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if !ours() {
			return nil
		}
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("end process %d: %w", pid, err)
		}
		for until := time.Now().Add(10 * time.Second); ours() && time.Now().Before(until); {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if ours() {
		return fmt.Errorf("end process %d: it does not end", pid)
	}
	return nil
}

// removeData removes everything but the pictures.
func (c *Config) removeData() error {
	for _, dir := range dataDirs {
		if err := os.RemoveAll(c.path(dir)); err != nil {
			return fmt.Errorf("remove the demo's data: %w", err)
		}
	}
	for _, name := range []string{stateName, "images.json", "packed.json"} {
		if err := os.Remove(c.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the demo's data: %w", err)
		}
	}
	return nil
}
