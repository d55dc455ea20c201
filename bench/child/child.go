// Package child carries jobs out in processes of their own: what a job uses is then
// known apart from what the measuring process uses. A job and its outcome travel as
// JSON over standard input and output.
package child

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Run gives job to a new process of command, and returns what it answers and how
// much processor time it and its children used. When ctx ends, the process is killed.
func Run[Outcome any](ctx context.Context, command []string, job any) (out Outcome, cpu CPU, err error) {
	in, err := json.Marshal(job)
	if err != nil {
		return out, cpu, fmt.Errorf("encode job: %w", err)
	}
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Stdin = bytes.NewReader(append(in, '\n'))
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	// The runtime's preemption signals would interrupt requests to a file system.
	c.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1")
	c.WaitDelay = 10 * time.Second
	if err := c.Run(); err != nil {
		if said := strings.TrimSpace(stderr.String()); said != "" {
			err = fmt.Errorf("%s (%w)", said, err)
		}
		return out, cpu, err
	}
	if err := json.Unmarshal(stdout.Bytes(), &out); err != nil {
		return out, cpu, fmt.Errorf("decode outcome: %w", err)
	}
	return out, CPU{User: c.ProcessState.UserTime(), System: c.ProcessState.SystemTime()}, nil
}

// CPU is processor time.
type CPU struct{ User, System time.Duration }

// All is both together.
func (c CPU) All() time.Duration { return c.User + c.System }
