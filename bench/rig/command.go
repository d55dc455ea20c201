package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Ran is how a program that runs to its end did.
type Ran struct {
	Stdout string
	// Took is from its start to its end, CPU what it used, PeakBytes its largest
	// resident size.
	Took, CPU time.Duration
	PeakBytes int64
}

// RunCommand runs a program to its end, with env added to this process's
// environment. A program that fails is an error that holds its last words.
func RunCommand(ctx context.Context, env []string, stdin io.Reader, name string, args ...string) (Ran, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Env = append(os.Environ(), env...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 20 * time.Second
	var stdout, stderr bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = stdin, &stdout, &stderr
	began := time.Now()
	err := c.Run()
	if err != nil {
		return Ran{}, fmt.Errorf("run %s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	r := Ran{Stdout: stdout.String(), Took: time.Since(began), CPU: c.ProcessState.UserTime() + c.ProcessState.SystemTime()}
	usage, ok := c.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return Ran{}, errors.New("this system does not tell how much memory a process had")
	}
	r.PeakBytes = usage.Maxrss << 10 // in KiB on Linux
	return r, nil
}

// Fill stores an object under each key that keys gives, a key a line, into the
// directory of a server that is not running.
func Fill(ctx context.Context, programs, dir, bucket string, keys io.Reader) error {
	_, err := RunCommand(ctx, nil, keys, programs+"/ossemu", "fill", "--dir", dir, "--bucket", bucket)
	return err
}
