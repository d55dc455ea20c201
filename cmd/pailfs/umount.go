package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/ask"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/prefetch/control"
)

// umountCmd is `pailfs umount`.
type umountCmd struct {
	MountPoint string `arg:"" name:"mountpoint" help:"The mount to end."`
	Lazy       bool   `name:"lazy" short:"l" xor:"how" help:"Take the name away now, even if the mount is in use; the daemon ends with the last user."`
	Force      bool   `name:"force" short:"f" xor:"how" help:"End the mount now; who uses it gets errors, and what is not uploaded stays in cache-dir for the next mount. Works when the daemon does not answer."`

	Timeout config.Duration `name:"timeout" default:"0s" placeholder:"TIME" help:"How long to wait for uploads before giving up and leaving the mount as it is; 0s waits for ever."`
}

// Help gives examples.
func (umountCmd) Help() string {
	return `Uploads what was written and not uploaded yet, unmounts, and returns when the daemon has ended. If something cannot be uploaded it is named and the mount stays. A mount that is in use is left alone, and the processes that use it are named. The mount of a dead daemon is cleared. umount(8) and fusermount3 -u end the daemon as cleanly, but do not wait for it.

Exit codes: 0 unmounted and everything is in the object store (with --force: or listed), 1 failed (in use, not permitted, not uploaded), 2 wrong arguments.

Examples:

	pailfs umount /mnt/data
	pailfs umount --lazy /mnt/data`
}

// Run unmounts.
func (c *umountCmd) Run(p command.Program) error {
	at, m, err := ask.At(c.MountPoint)
	if err != nil {
		return err
	}
	state, err := mountpoint.Probe(at, mountpoint.Patience)
	switch {
	case err != nil:
		return fmt.Errorf("unmount %s: %w", at, err)
	case state == mountpoint.Dead:
		if err := mountpoint.Unmount(at, true); err != nil {
			return err
		}
		fmt.Fprintf(p.Stderr, "pailfs: the daemon of %s at %s had died; its mount is cleared\n", m.Source, at)
		return nil
	case state == mountpoint.Stuck && c.Force:
		return abort(m)
	case state == mountpoint.Stuck:
		return fmt.Errorf("unmount %s: the daemon does not answer: wait, or end it with pailfs umount --force %s", at, at)
	}
	if err := c.permitted(at); err != nil {
		return err
	}
	if !c.Force && !c.Lazy {
		if err := drainMount(p, at, time.Duration(c.Timeout)); err != nil {
			return err
		}
	}
	answer, daemon, err := c.end(at, m)
	for try := 1; errors.Is(err, errNobodySeen) && try < unseenTries; try++ {
		// On a busy machine it may have been this process, which had just asked.
		answer, daemon, err = c.end(at, m)
	}
	if err != nil || daemon == nil {
		return err
	}
	defer daemon.Close()
	if c.Lazy {
		return nil
	}
	if err := awaitEnd(p, daemon); err != nil || answer.CacheDir == "" {
		return err
	}
	return c.ended(p, at, answer)
}

// permitted says so if this user may not unmount, before it is waited for uploads: whoever may
// not is not to be told that something is not uploaded.
func (c *umountCmd) permitted(at string) error {
	ctx, cancel := context.WithTimeout(context.Background(), mountpoint.Patience)
	defer cancel()
	err := ask.Call(ctx, at, wire.MethodUmount, wire.UmountParams{Result: true}, nil)
	if errors.Is(err, &control.Error{Code: control.CodeRefused}) {
		return notPermitted(at)
	}
	return nil // whatever else is wrong, what follows tells
}

func notPermitted(at string) error {
	return fmt.Errorf("unmount %s: not permitted: only root and the user who mounted it may", at)
}

// errNobodySeen is the error of a mount that is in use by nobody who can be seen from here.
var errNobodySeen = errors.New("in use by a process that cannot be seen from here: stop it, or use --lazy")

// unseenTries is how often a mount that nobody seems to use is unmounted before that is an error.
const unseenTries = 3

// end tells the daemon of m, which is at at, to unmount, and returns when m is gone from there. It
// returns no daemon to wait for if the mount is gone without one.
func (c *umountCmd) end(at string, m mountpoint.Mount) (answer wire.UmountAnswer, daemon *ask.Process, err error) {
	answer, err = c.ask(at)
	switch {
	case errors.Is(err, &control.Error{Code: control.CodeRefused}):
		return answer, nil, notPermitted(at)
	case err != nil && c.Force:
		return answer, nil, abort(m)
	case err != nil:
		return answer, nil, fmt.Errorf("unmount %s: %w", at, err)
	case answer.MountPoint != at:
		// A bind mount: it can go without the mount that it shows.
		return answer, nil, mountpoint.Unmount(at, c.Lazy || c.Force)
	}
	if daemon, err = ask.Watch(answer.PID, answer.StartTicks); err != nil {
		return answer, nil, err
	}
	if err := awaitUnmount(at, m, daemon, c.patience()); err != nil {
		daemon.Close()
		return answer, nil, err
	}
	return answer, daemon, nil
}

// ended says what the daemon, which has ended, could not publish.
func (c *umountCmd) ended(p command.Program, at string, answer wire.UmountAnswer) error {
	end, err := wire.ReadEnding(answer.CacheDir, answer.PID)
	switch {
	case err != nil:
		return fmt.Errorf("unmounted %s, but whether everything is in the object store cannot be known: %w", at, err)
	case end.Left > 0 && c.Force:
		p.Notice(command.OneLine(end.Err()))
		return nil
	case end.Left > 0:
		return fmt.Errorf("unmounted %s: %w", at, end.Err())
	}
	return nil
}

// drainMount returns when everything that was written is in the object store. If
// something cannot get there the mount is left as it is.
func drainMount(p command.Program, at string, patience time.Duration) error {
	ctx, stop := command.Interruptible()
	defer stop()
	if patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	err := flush(ctx, p, at, "")
	switch {
	case err == nil, errors.Is(err, &control.Error{Code: control.CodeUnknownMethod}):
		return nil
	case errors.Is(err, control.ErrDaemonGone):
		return nil // what follows tells
	}
	return fmt.Errorf("%s is still mounted, because not everything that was written is in the object store: %w: try again, or pailfs umount --force %s leaves it in cache-dir for the next mount", at, err, at)
}

// answerPatience is how long a daemon whose mount answers may take for a question, each of which
// is a process of its own: on a machine that is very busy five seconds are too few.
const answerPatience = time.Minute

// patience is how long the daemon is waited for. By force it ends without its answer.
func (c *umountCmd) patience() time.Duration {
	if c.Force {
		return mountpoint.Patience
	}
	return answerPatience
}

// ask asks the daemon of the mount at path to unmount it, if it mounted there.
func (c *umountCmd) ask(at string) (answer wire.UmountAnswer, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.patience())
	defer cancel()
	err = ask.Call(ctx, at, wire.MethodUmount, wire.UmountParams{Result: true}, &answer)
	if err != nil || answer.MountPoint != at {
		return answer, err
	}
	err = ask.Call(ctx, at, wire.MethodUmount, wire.UmountParams{Lazy: c.Lazy, Force: c.Force}, &answer)
	return answer, err
}

// abort ends a mount whose daemon cannot be asked.
func abort(m mountpoint.Mount) error {
	if err := mountpoint.Abort(m); err != nil {
		return fmt.Errorf("%w: try as root", err)
	}
	return mountpoint.Unmount(m.Path, true)
}

// umountPoll is how often a caller looks whether the mount is gone, and awaitPatience how long it
// waits for that.
const (
	umountPoll    = 20 * time.Millisecond
	awaitPatience = wire.UmountPatience + 3*time.Second
)

// awaitUnmount returns when m is no longer mounted at at, or says why it still is, for which the
// daemon is asked with some patience.
func awaitUnmount(at string, m mountpoint.Mount, daemon *ask.Process, patience time.Duration) error {
	for deadline := time.Now().Add(awaitPatience); time.Now().Before(deadline); time.Sleep(umountPoll) {
		now, mounted, err := mountpoint.At(at)
		if err != nil {
			return err
		}
		if !mounted || now.Dev() != m.Dev() {
			return nil
		}
		if daemon.Ended() {
			// It unmounted in its own namespace; what is left in ours is dead.
			return mountpoint.Unmount(at, true)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var answer wire.UmountAnswer
	if err := ask.Call(ctx, at, wire.MethodUmount, wire.UmountParams{Result: true}, &answer); err != nil {
		return fmt.Errorf("unmount %s: %w", at, err)
	}
	switch {
	case answer.Last == nil:
		return fmt.Errorf("unmount %s: the daemon did not get to it within %s", at, awaitPatience)
	case !answer.Last.Busy:
		return errors.New(answer.Last.Error)
	}
	users := answer.Last.Users
	for _, h := range mountpoint.Holders(m) {
		if s := h.String(); !strings.Contains(strings.Join(users, "\n"), s) {
			users = append(users, s)
		}
	}
	if len(users) == 0 {
		return fmt.Errorf("unmount %s: %w", at, errNobodySeen)
	}
	return fmt.Errorf("unmount %s: in use by %s: stop them, or use --lazy", at, strings.Join(users, ", "))
}

// endPatience is how long a daemon may take to close its cache.
const endPatience = time.Minute

// awaitEnd returns when the daemon has ended, if it can be seen from here.
func awaitEnd(p command.Program, daemon *ask.Process) error {
	if !daemon.Seen() || daemon.Poll(time.Second) {
		return nil
	}
	p.Progress("unmounted; waiting for the daemon to close its cache")
	for deadline := time.Now().Add(endPatience); time.Now().Before(deadline); {
		if daemon.Poll(time.Second) {
			return nil
		}
	}
	return fmt.Errorf("unmounted, but the daemon has not ended within %s", endPatience)
}
