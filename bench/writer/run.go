package writer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/pailfs/pailfs/bench/child"
	"github.com/pailfs/pailfs/bench/machine"
)

// Process carries jobs out in child processes.
type Process struct {
	// Command is the program and its arguments; it must call [Serve].
	Command []string
}

// Run carries job out, and says how much processor time that took.
func (p Process) Run(ctx context.Context, job Job) (Outcome, child.CPU, error) {
	out, cpu, err := child.Run[Outcome](ctx, p.Command, job)
	if err != nil {
		return Outcome{}, cpu, fmt.Errorf("%s: %w", job.Pattern, err)
	}
	return out, cpu, nil
}

// Serve reads one job from in, carries it out and writes its outcome to out. A job
// of several writers is shared among processes of command.
func Serve(ctx context.Context, command []string, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	text, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	var job Job
	if err := json.Unmarshal(text, &job); err != nil {
		return fmt.Errorf("decode job: %w", err)
	}
	if err := job.validate(); err != nil {
		return err
	}
	gate := func() error { return nil }
	if job.Gate {
		gate = func() error {
			if _, err := fmt.Fprintln(out, "ready"); err != nil {
				return err
			}
			_, err := lines.ReadBytes('\n')
			return err
		}
	}
	var outcome Outcome
	switch {
	case job.Bucket != nil:
		outcome, err = runBucket(ctx, job)
	case job.Writers > 1:
		outcome, err = shareOut(ctx, command, job)
	default:
		outcome, err = runFiles(ctx, job, gate)
	}
	if err != nil {
		return err
	}
	memory, err := machine.MemoryOf(os.Getpid())
	if err != nil {
		return err
	}
	outcome.PeakBytes = max(outcome.PeakBytes, memory.PeakBytes)
	return json.NewEncoder(out).Encode(outcome)
}

// shareOut runs a process for each writer. They begin when all of them are ready,
// and the clock stops when the last one has ended.
func shareOut(ctx context.Context, command []string, job Job) (all Outcome, err error) {
	writers := make([]*sharer, job.Writers)
	for i := range writers {
		one := job
		one.Files, one.Writers, one.Gate = job.share(i), 1, true
		if writers[i], err = startSharer(ctx, command, one); err != nil {
			return Outcome{}, errors.Join(err, stopSharers(writers[:i]))
		}
	}
	defer func() { err = errors.Join(err, stopSharers(writers)) }()
	for _, w := range writers {
		if _, err := w.out.ReadString('\n'); err != nil {
			return Outcome{}, fmt.Errorf("wait for a writer to be ready: %w", err)
		}
	}
	began := time.Now()
	for _, w := range writers {
		if _, err := io.WriteString(w.in, "go\n"); err != nil {
			return Outcome{}, fmt.Errorf("begin: %w", err)
		}
	}
	all.Began = began.UnixNano()
	for _, w := range writers {
		var one Outcome
		if err := json.NewDecoder(w.out).Decode(&one); err != nil {
			return Outcome{}, fmt.Errorf("a writer failed: %w", err)
		}
		all.Bytes += one.Bytes
		all.Ops += one.Ops
		all.PeakBytes = max(all.PeakBytes, one.PeakBytes)
	}
	all.Seconds = time.Since(began).Seconds()
	return all, nil
}

// sharer is a process that writes a share.
type sharer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startSharer(ctx context.Context, command []string, job Job) (*sharer, error) {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start a writer: %w", err)
	}
	s := &sharer{cmd: c, in: in, out: bufio.NewReader(out)}
	if err := json.NewEncoder(in).Encode(job); err != nil {
		return nil, errors.Join(fmt.Errorf("give a writer its job: %w", err), stopSharers([]*sharer{s}))
	}
	return s, nil
}

func stopSharers(writers []*sharer) error {
	var failed error
	for _, w := range writers {
		failed = errors.Join(failed, w.in.Close(), w.cmd.Wait())
	}
	return failed
}
