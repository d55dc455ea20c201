package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/internal/command"
)

// restartAfter is how long a program that has ended stays so.
const restartAfter = time.Second

// supervise is the first process of a container: it runs the driver, starts it again when that has died, and takes leave
// of daemons that have ended, for they are nobody else's children. When ctx ends it ends the driver and returns its exit
// code; the container and its daemons end with the first process.
func supervise(ctx context.Context, stderr io.Writer, argv, environ []string) int {
	for {
		driver, err := os.StartProcess("/proc/self/exe", argv, &os.ProcAttr{Env: environ, Files: []*os.File{nil, os.Stdout, os.Stderr}})
		if err != nil {
			fmt.Fprintf(stderr, "pailfs-csi: start the driver: %v\n", err)
			return command.Failed
		}
		stop := context.AfterFunc(ctx, func() { _ = unix.Kill(driver.Pid, unix.SIGTERM) }) // it may have ended
		status, err := reapUntil(driver.Pid)
		stop()
		switch {
		case err != nil:
			fmt.Fprintf(stderr, "pailfs-csi: wait for the driver: %v\n", err)
			return command.Failed
		case ctx.Err() != nil || status.Exited() && status.ExitStatus() != 0:
			return status.ExitStatus() // it said why it cannot serve
		}
		fmt.Fprintf(stderr, "pailfs-csi: the driver ended (%v) and is started again\n", status)
		select {
		case <-ctx.Done():
			return 0
		case <-time.After(restartAfter):
		}
	}
}

// reapUntil takes leave of every child that ends, until pid has ended.
func reapUntil(pid int) (syscall.WaitStatus, error) {
	for {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return status, err
		case ended == pid:
			return status, nil
		}
	}
}
