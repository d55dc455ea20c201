package rig

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/pailfs/pailfs/bench/machine"
)

// Ran is how a program that runs to its end did.
type Ran struct {
	Stdout string
	// Took is from its start to its end, CPU what it used, PeakBytes its largest
	// resident size, looked at every 20 ms.
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
	var r Ran
	began := time.Now()
	err := c.Start()
	if err == nil {
		peak := watchPeak(c.Process.Pid)
		err = c.Wait()
		r.PeakBytes = peak()
	}
	if err != nil {
		return Ran{}, fmt.Errorf("run %s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	r.Stdout, r.Took = stdout.String(), time.Since(began)
	r.CPU = c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	return r, nil
}

// watchPeak follows the largest resident size of a process until the function it
// returns is called, which says how large that was, in bytes. What wait4(2) tells
// is no use: it counts what this process had when it made the other.
func watchPeak(pid int) func() int64 {
	ended, peak := make(chan struct{}), make(chan int64)
	go func() {
		most := int64(0)
		for {
			if m, err := machine.MemoryOf(pid); err == nil {
				most = max(most, m.PeakBytes)
			}
			select {
			case <-ended:
				peak <- most
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() int64 {
		close(ended)
		return <-peak
	}
}

// Fill stores an object under each key that keys gives, a key a line, into the
// directory of a server that is not running.
func Fill(ctx context.Context, programs, dir, bucket string, keys io.Reader) error {
	_, err := RunCommand(ctx, nil, keys, programs+"/ossemu", "fill", "--dir", dir, "--bucket", bucket)
	return err
}
