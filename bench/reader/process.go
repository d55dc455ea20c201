package reader

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/pailfs/pailfs/bench/child"
	"github.com/pailfs/pailfs/bench/machine"
)

// Process carries jobs out in child processes.
type Process struct {
	// Command is the program and its arguments; it must call [Serve].
	Command []string
}

// Run carries job out in a new process, and says how much processor time that
// took. When ctx ends, the process is killed.
func (p Process) Run(ctx context.Context, job Job) (Outcome, child.CPU, error) {
	out, cpu, err := child.Run[Outcome](ctx, p.Command, job)
	if err != nil {
		return Outcome{}, cpu, fmt.Errorf("read %s: %w", job.Pattern, err)
	}
	return out, cpu, nil
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
