package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
)

// supervise runs the command, again if the mount fails, and drains at the end.
func (c *runCmd) supervise(p program, m *mount, environ []string, signals chan os.Signal) error {
	var told notice
	for failures := 0; ; failures++ {
		e := ending{grace: c.Grace, linger: c.Linger, upload: c.Upload, told: &told, out: p.Stderr}
		e.signal, _ = parseSignal(c.Notice) // validate has done it before
		if failures < c.Restarts {
			e.linger = c.Wait // the mount that it waits for may be replaced
		}
		code, stopped, err := c.once(p, m, environ, signals, e)
		again := failures < c.Restarts && !stopped && told.Deadline.IsZero()
		switch {
		case errors.Is(err, errKilled) && again:
			fmt.Fprintf(p.Stderr, "pailfs: the mount failed: start %d of %d again\n", failures+1, c.Restarts)
			if err := m.await(context.Background(), c.Wait); err != nil {
				return &command.Error{Code: exitNotRun, Err: err}
			}
			continue
		case errors.Is(err, errKilled):
			return &command.Error{Code: exitNotRun, Err: fmt.Errorf("the mount %s failed while the command ran, which then ended with exit code %d", c.Mount, code)}
		case errors.Is(err, errStuck):
			p.Report(err) // what it wrote before can be saved
		case err != nil:
			return err
		}
		return c.finish(p, m, code, told)
	}
}

// once starts the command and waits for its end.
func (c *runCmd) once(p program, m *mount, environ []string, signals chan os.Signal, e ending) (code int, stopped bool, err error) {
	command, err := startChild(c.Command, environ, signals)
	if err != nil {
		return 0, false, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan struct{})
	n := newNews()
	go func() {
		defer close(watched)
		c.attend(ctx, p, m, n)
	}()
	code, err = command.wait(n, e)
	cancel()
	<-watched
	return code, command.stopped, err
}

// attend watches the mount while the command runs, and meanwhile warms what was not
// warmed before.
func (c *runCmd) attend(ctx context.Context, p program, m *mount, n *news) {
	if m == nil {
		return
	}
	warmed := make(chan struct{})
	go func() {
		defer close(warmed)
		if c.NoWait {
			if err := c.warm(ctx, m); err != nil && ctx.Err() == nil {
				p.Report(err)
			}
		}
	}()
	m.watch(ctx, n)
	<-warmed
}

// finish brings what was written to the object store, before the machine goes if that was
// told, and returns the exit code as an error.
func (c *runCmd) finish(p program, m *mount, code int, told notice) error {
	if m != nil {
		patience := c.Drain
		if !told.Deadline.IsZero() {
			patience = max(time.Second, min(patience, time.Until(told.Deadline)))
		}
		s, err := m.check(context.Background())
		if err == nil && s.Writing != nil {
			err = m.drain(patience)
		}
		switch {
		case err != nil:
			p.Report(fmt.Errorf("not all that was written is in the object store: %w; it stays staged on this node", err))
			if code == 0 {
				return &command.Error{Code: exitNotSaved}
			}
		case !told.Deadline.IsZero():
			fmt.Fprintf(p.Stderr, "pailfs: everything that was written is in the object store, %s before the machine goes\n", left(told.Deadline))
		}
	}
	if code != 0 {
		return &command.Error{Code: code}
	}
	return nil
}
