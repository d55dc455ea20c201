package reader

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Process carries jobs out in child processes.
type Process struct {
	// Command is the program and its arguments; it must call [Serve].
	Command []string
}

// Usage is what a reading process used.
type Usage struct {
	CPU time.Duration
	// PeakBytes is its largest resident size.
	PeakBytes int64
}

// Run carries job out in a new process. When ctx ends, the process is killed.
func (p Process) Run(ctx context.Context, job Job) (Outcome, Usage, error) {
	in, err := json.Marshal(job)
	if err != nil {
		return Outcome{}, Usage{}, fmt.Errorf("encode job: %w", err)
	}
	c := exec.CommandContext(ctx, p.Command[0], p.Command[1:]...)
	c.Stdin = bytes.NewReader(in)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	// The runtime's preemption signals would interrupt requests to a file system.
	c.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1")
	c.WaitDelay = 10 * time.Second
	if err := c.Run(); err != nil {
		if said := strings.TrimSpace(stderr.String()); said != "" {
			err = fmt.Errorf("%s (%w)", said, err)
		}
		return Outcome{}, Usage{}, fmt.Errorf("read %s: %w", job.Pattern, err)
	}
	var out Outcome
	if err := json.Unmarshal(stdout.Bytes(), &out); err != nil {
		return Outcome{}, Usage{}, fmt.Errorf("decode outcome: %w", err)
	}
	usage := Usage{CPU: c.ProcessState.UserTime() + c.ProcessState.SystemTime()}
	if r, ok := c.ProcessState.SysUsage().(*syscall.Rusage); ok {
		usage.PeakBytes = r.Maxrss << 10
	}
	return out, usage, nil
}

// Serve reads one job from in, carries it out and writes its outcome to out.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	var job Job
	if err := json.NewDecoder(in).Decode(&job); err != nil {
		return fmt.Errorf("decode job: %w", err)
	}
	outcome, err := Run(ctx, job)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(outcome)
}
