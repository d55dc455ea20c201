package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
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

// umountParams are the parameters of the control method umount.
type umountParams struct {
	// Lazy and Force say how, as the flags do.
	Lazy  bool `json:"lazy,omitempty"`
	Force bool `json:"force,omitempty"`
	// Result asks how the last attempt ended and begins none.
	Result bool `json:"result,omitempty"`
}

// umountAnswer is the result of the control method umount. The attempt begins
// after it, for its caller's own directory keeps the mount in use.
type umountAnswer struct {
	// MountPoint is where the daemon mounted. A bind mount of it has another path.
	MountPoint string `json:"mountpoint"`
	// PID is the daemon's process, in its own namespace, and StartTicks when it
	// began, as /proc/PID/stat says: a caller that finds another process there is
	// in another namespace.
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"start_ticks"`
	// CacheDir is where the daemon leaves word of how it ended; "" if the mount cannot
	// be written.
	CacheDir string `json:"cache_dir,omitempty"`
	// Last is how the last attempt ended, absent if there was none.
	Last *umountState `json:"last,omitempty"`
}

// umountState is how an attempt to unmount ended, if it failed.
type umountState struct {
	At    time.Time `json:"at"`
	Busy  bool      `json:"busy"`
	Error string    `json:"error,omitempty"`
	// Users are the processes that the daemon sees using the mount.
	Users []string `json:"users,omitempty"`
}

// answerUmount is the control method umount.
func (d *daemon) answerUmount(ctx context.Context, c control.Caller, params umountParams) (umountAnswer, error) {
	select {
	case <-d.opened:
	case <-ctx.Done():
		return umountAnswer{}, ctx.Err()
	}
	if !params.Result {
		d.log.Info("told to unmount", "uid", c.UID, "pid", c.PID, "lazy", params.Lazy, "force", params.Force)
		d.lastUmount.Store(nil)
		select {
		case d.requests <- params:
		case <-ctx.Done():
			return umountAnswer{}, ctx.Err()
		}
	}
	ticks, err := startTicks(os.Getpid())
	if err != nil {
		return umountAnswer{}, err
	}
	answer := umountAnswer{MountPoint: d.at, PID: os.Getpid(), StartTicks: ticks}
	if d.writing != nil {
		answer.CacheDir = d.writing.dir
	}
	if last := d.lastUmount.Load(); last != nil {
		state := *last
		if state.Busy {
			state.Users = d.holders(int(c.PID))
		}
		answer.Last = &state
	}
	return answer, nil
}

// Run unmounts.
func (c *umountCmd) Run(p command.Program) error {
	at, m, err := findMount(c.MountPoint)
	if err != nil {
		return err
	}
	state, err := mountpoint.Probe(at, probePatience)
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
	defer daemon.close()
	if c.Lazy {
		return nil
	}
	if err := daemon.wait(p); err != nil || answer.CacheDir == "" {
		return err
	}
	return c.ended(p, at, answer)
}

// errNobodySeen is the error of a mount that is in use by nobody who can be seen from here.
var errNobodySeen = errors.New("in use by a process that cannot be seen from here: stop it, or use --lazy")

// unseenTries is how often a mount that nobody seems to use is unmounted before that is an error.
const unseenTries = 3

// end tells the daemon of m, which is at at, to unmount, and returns when m is gone from there. It
// returns no daemon to wait for if the mount is gone without one.
func (c *umountCmd) end(at string, m mountpoint.Mount) (answer umountAnswer, daemon *process, err error) {
	answer, err = c.ask(at)
	switch {
	case errors.Is(err, &control.Error{Code: control.CodeRefused}):
		return answer, nil, fmt.Errorf("unmount %s: not permitted: only root and the user who mounted it may", at)
	case err != nil && c.Force:
		return answer, nil, abort(m)
	case err != nil:
		return answer, nil, fmt.Errorf("unmount %s: %w", at, err)
	case answer.MountPoint != at:
		// A bind mount: it can go without the mount that it shows.
		return answer, nil, mountpoint.Unmount(at, c.Lazy || c.Force)
	}
	if daemon, err = watchProcess(answer.PID, answer.StartTicks); err != nil {
		return answer, nil, err
	}
	if err := awaitUnmount(at, m, daemon); err != nil {
		daemon.close()
		return answer, nil, err
	}
	return answer, daemon, nil
}

// ended says what the daemon, which has ended, could not publish.
func (c *umountCmd) ended(p command.Program, at string, answer umountAnswer) error {
	end, err := readEnding(answer.CacheDir, answer.PID)
	switch {
	case err != nil:
		return fmt.Errorf("unmounted %s, but whether everything is in the object store cannot be known: %w", at, err)
	case end.Left > 0 && c.Force:
		p.Notice(command.OneLine(end.error()))
		return nil
	case end.Left > 0:
		return fmt.Errorf("unmounted %s: %w", at, end.error())
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

// ask asks the daemon of the mount at path to unmount it, if it mounted there.
func (c *umountCmd) ask(at string) (answer umountAnswer, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), probePatience)
	defer cancel()
	err = withDaemon(ctx, at, func(daemon *control.Client) error {
		if err := daemon.Call(ctx, methodUmount, umountParams{Result: true}, &answer); err != nil || answer.MountPoint != at {
			return err
		}
		return daemon.Call(ctx, methodUmount, umountParams{Lazy: c.Lazy, Force: c.Force}, &answer)
	})
	return answer, err
}

// findMount returns the pailfs mount at path.
func findMount(path string) (string, mountpoint.Mount, error) {
	at, err := mountpoint.Resolve(path)
	if err != nil {
		if mountpoint.Missing(err) {
			return "", mountpoint.Mount{}, fmt.Errorf("%s does not exist: give the directory where a bucket is mounted", path)
		}
		return "", mountpoint.Mount{}, fmt.Errorf("%s: %w", path, err)
	}
	m, mounted, err := mountpoint.At(at)
	switch {
	case err != nil:
		return "", m, err
	case !mounted:
		return "", m, fmt.Errorf("nothing is mounted at %s", at)
	case m.Type != mountpoint.Type:
		return "", m, fmt.Errorf("%s is a mount of type %s, not of pailfs", at, m.Type)
	}
	return at, m, nil
}

// abort ends a mount whose daemon cannot be asked.
func abort(m mountpoint.Mount) error {
	if err := mountpoint.Abort(m); err != nil {
		return fmt.Errorf("%w: try as root", err)
	}
	return mountpoint.Unmount(m.Path, true)
}

// How long the daemon tries to unmount for a caller of umount, and how long the
// caller waits for the outcome.
const (
	umountPatience = 2 * time.Second
	umountPoll     = 20 * time.Millisecond
	awaitPatience  = umountPatience + 3*time.Second
)

// awaitUnmount returns when m is no longer mounted at at, or says why it still is.
func awaitUnmount(at string, m mountpoint.Mount, daemon *process) error {
	for deadline := time.Now().Add(awaitPatience); time.Now().Before(deadline); time.Sleep(umountPoll) {
		now, mounted, err := mountpoint.At(at)
		if err != nil {
			return err
		}
		if !mounted || now.Dev() != m.Dev() {
			return nil
		}
		if daemon.ended() {
			// It unmounted in its own namespace; what is left in ours is dead.
			return mountpoint.Unmount(at, true)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), probePatience)
	defer cancel()
	var answer umountAnswer
	if err := callDaemon(ctx, at, methodUmount, umountParams{Result: true}, &answer); err != nil {
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

// process is a process that is watched until it ends.
type process struct {
	// fd is -1 if the process cannot be seen from here.
	fd int
}

// watchProcess watches the process pid if it began at the given time.
func watchProcess(pid int, ticks uint64) (*process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return &process{fd: -1}, nil // it has ended, or is in another namespace
	}
	now, err := startTicks(pid)
	if err != nil || now != ticks {
		return &process{fd: -1}, unix.Close(fd)
	}
	return &process{fd: fd}, nil
}

// ended reports whether the process is known to have ended.
func (p *process) ended() bool { return p.fd >= 0 && p.poll(0) }

// poll waits for the end at most the given time and reports whether it came.
func (p *process) poll(patience time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int(patience.Milliseconds()))
	return err == nil && n > 0
}

// endPatience is how long a daemon may take to close its cache.
const endPatience = time.Minute

// wait returns when the process has ended.
func (p *process) wait(from command.Program) error {
	if p.fd < 0 {
		return nil
	}
	if p.poll(time.Second) {
		return nil
	}
	from.Progress("unmounted; waiting for the daemon to close its cache")
	for deadline := time.Now().Add(endPatience); time.Now().Before(deadline); {
		if p.poll(time.Second) {
			return nil
		}
	}
	return fmt.Errorf("unmounted, but the daemon has not ended within %s", endPatience)
}

func (p *process) close() {
	if p.fd >= 0 {
		_ = unix.Close(p.fd) // only watched
	}
}

// startTicks returns when the process began, in the kernel's ticks since it
// started itself: with the pid it names a process for ever.
func startTicks(pid int) (uint64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("read start of process: %w", err)
	}
	// The second field, the name in brackets, may hold anything; the start is the
	// twenty-second.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const start = 22 - 3
	if len(fields) <= start {
		return 0, fmt.Errorf("read start of process %d: too few fields", pid)
	}
	ticks, err := strconv.ParseUint(fields[start], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read start of process %d: %w", pid, err)
	}
	return ticks, nil
}
