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
	"time"

	"github.com/pailfs/pailfs/bench/machine"
)

// Process carries jobs out in child processes.
type Process struct {
	// Command is the program and its arguments; it must call [Serve].
	Command []string
}

// Run carries job out in a new process, and says how much processor time that
// took. When ctx ends, the process is killed.
func (p Process) Run(ctx context.Context, job Job) (Outcome, time.Duration, error) {
	in, err := json.Marshal(job)
	if err != nil {
		return Outcome{}, 0, fmt.Errorf("encode job: %w", err)
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
		return Outcome{}, 0, fmt.Errorf("read %s: %w", job.Pattern, err)
	}
	var out Outcome
	if err := json.Unmarshal(stdout.Bytes(), &out); err != nil {
		return Outcome{}, 0, fmt.Errorf("decode outcome: %w", err)
	}
	return out, c.ProcessState.UserTime() + c.ProcessState.SystemTime(), nil
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
	// Not the resource usage of wait4: that knows the parent's pages as well, which
	// the child shares until it executes its program.
	memory, err := machine.MemoryOf(os.Getpid())
	if err != nil {
		return err
	}
	outcome.PeakBytes = memory.PeakBytes
	return json.NewEncoder(out).Encode(outcome)
}
