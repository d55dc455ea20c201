package main

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/ask"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/cmd/terminal"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/prefetch/control"
)

// stagedAcceptCmd is `pailfs staged accept`.
type stagedAcceptCmd struct {
	File string `arg:"" name:"file" placeholder:"FILE" help:"A file of a mount that pailfs status names as LOST."`
	Yes  bool   `name:"yes" help:"Accept it without asking."`
}

// Help says what the risk is, and gives examples.
func (stagedAcceptCmd) Help() string {
	return `A file is LOST when the disk could not take what was written to it: the kernel tells of that once, and nobody can tell afterwards which bytes are wrong, so it is never published by itself. It happens to a file that is healthy, too: to one that is written with O_DIRECT and without at the same time, or where the disk was out of reach for a moment.

accept reads all of the file from the disk, not from memory, shows how long it is and its CRC-64, and whether programs see other bytes than the disk has. When you agree it is written anew to another file, brought to the disk, read again and compared; then it has the place of what was lost, counts as closed and is published. That needs as much room as the file has, and that no program has it open.

The risk: bytes that were written and that the disk did not take are not in it. They may be older ones or zeros, in the middle of the file, and nothing shows that. Look at the file first, compare it with a checksum that you have, or write it again if you can.

Of a LOST file that was removed nothing is published: to accept that lets go of its bytes, and status names it no longer.

Root and the user who mounted may do that.

Exit codes: 0 accepted, 1 failed, 2 wrong arguments, or not agreed to, 3 the daemon is dead.

Examples:

	pailfs status /mnt
	pailfs staged accept /mnt/run/events.db
	pailfs staged accept --yes /mnt/run/events.db`
}

// Run shows what there is, asks, and accepts it.
func (c *stagedAcceptCmd) Run(p command.Program) error {
	at, path, err := ask.Within(c.File)
	if err != nil {
		return err
	}
	ctx, stop := command.Interruptible()
	defer stop()
	p.Progress("reading it from the disk")
	var shown writeback.Remains
	if err := ask.Call(ctx, at.Path, wire.MethodAccept, wire.AcceptParams{Path: path}, &shown); err != nil {
		return c.explain(at, err)
	}
	showRemains(p, shown)
	if !c.Yes && !terminal.Agrees(p.Stdin, p.Stderr, "Accept it as it is?") {
		return command.Usage(errors.New("nothing was accepted: with --yes it is"))
	}
	var taken writeback.Remains
	if err := ask.Call(ctx, at.Path, wire.MethodAccept, wire.AcceptParams{Path: path, Take: true, CRC64: shown.Sum}, &taken); err != nil {
		return c.explain(at, err)
	}
	if taken.Unlinked > 0 {
		fmt.Fprintf(p.Stderr, "pailfs: %s was let go\n", terminal.Name(path))
		return nil
	}
	forgetPages(c.File)
	fmt.Fprintf(p.Stderr, "pailfs: %s was accepted: it is published as any change is\n", terminal.Name(path))
	return nil
}

// explain adds where an error is from.
func (c *stagedAcceptCmd) explain(at mountpoint.Mount, err error) error {
	if errors.Is(err, control.ErrDaemonGone) {
		return ask.DeadMount(at)
	}
	return fmt.Errorf("accept %s: %w", c.File, err)
}

// showRemains says what would be accepted.
func showRemains(p command.Program, r writeback.Remains) {
	if r.Unlinked > 0 {
		fmt.Fprintf(p.Stdout, "%s: LOST, and it has no name any more: its %d bytes are let go for good (pailfs staged export copies them out of an unmounted cache directory)\n", terminal.Name(r.Path), r.Bytes)
		return
	}
	fmt.Fprintf(p.Stdout, "%s: %d bytes can be read from the disk, CRC-64 %s, written last at %s\n", terminal.Name(r.Path), r.Bytes, r.Sum, r.Modified.Format(time.RFC3339))
	if r.Remembered {
		fmt.Fprintln(p.Stdout, "this file system does not let the disk be read past the kernel's memory: what was read may be in memory alone")
	}
	if r.Differs > 0 {
		fmt.Fprintf(p.Stdout, "programs see %d other bytes, from %d on: the kernel has them in memory, the disk does not, and they are not what is accepted\n", r.Differs, r.FirstDiffers)
	}
	fmt.Fprintln(p.Stdout, "what the disk did not take of it is missing, and nothing shows where")
}

// forgetPages lets the kernel forget what it has in memory of a file.
func forgetPages(path string) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return // it is not needed where nobody may read it
	}
	defer unix.Close(fd) //nolint:errcheck // it was only opened
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
}
