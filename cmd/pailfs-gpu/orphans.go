package main

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// own are the children of this program that are no orphans: the command and questions to
// the mount, whom somebody waits for, and those that were there before.
//
// The lock is held while a process is started. So a child is never looked at before it is
// known whose it is.
var own = struct {
	sync.Mutex
	pids map[int]bool
}{pids: map[int]bool{}}

// startOwn starts a process that [waitOwn] waits for.
func startOwn(c *exec.Cmd) error {
	own.Lock()
	defer own.Unlock()
	err := c.Start()
	if err == nil {
		own.pids[c.Process.Pid] = true
	}
	return err
}

// waitOwn waits for the end of a process of startOwn.
func waitOwn(c *exec.Cmd) error {
	err := c.Wait()
	own.Lock()
	defer own.Unlock()
	delete(own.pids, c.Process.Pid)
	return err
}

// adopt makes this program the parent of every process below it whose own parent ends.
// Children that it has already are not looked after.
func adopt() error {
	own.Lock()
	defer own.Unlock()
	for _, pid := range children() {
		own.pids[pid] = true
	}
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// orphans returns the processes that were adopted and have not ended, and reaps those that
// have.
func orphans() []int {
	own.Lock()
	defer own.Unlock()
	return slices.DeleteFunc(children(), func(pid int) bool {
		if own.pids[pid] {
			return true
		}
		got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		return got == pid || errors.Is(err, syscall.ECHILD)
	})
}

// children lists the processes whose parent this one is. It needs /proc, and finds none
// without.
func children() []int {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = d.Close() }() // it was only read
	names, _ := d.Readdirnames(-1)   // what was read is of use
	self := strconv.Itoa(os.Getpid())
	var pids []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended
		}
		// "PID (NAME) STATE PARENT …", and NAME may hold anything.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 1 && fields[1] == self {
			pids = append(pids, pid)
		}
	}
	return pids
}
