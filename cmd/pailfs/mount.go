package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/alecthomas/kong"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/daemonlog"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/detached"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/machine"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mounting"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/reach"
	"github.com/pailfs/pailfs/cmd/terminal"
)

// mountCmd is `pailfs mount`.
type mountCmd struct {
	Source     config.Location `arg:"" placeholder:"oss://BUCKET[/PREFIX]" help:"What to mount: oss://bucket or oss://bucket/prefix."`
	MountPoint string          `arg:"" name:"mountpoint" help:"Where to mount it: an empty directory."`
	Detach     bool            `name:"detach" short:"d" help:"Return when the mount answers and leave the daemon running."`
	Mkdir      bool            `name:"mkdir" help:"Make the mount point if it is not there and the directory above it is."`
	reach.SettingsFlags
}

// Help gives examples.
func (mountCmd) Help() string {
	return `The daemon runs in the foreground until it is unmounted or gets SIGINT or SIGTERM; with --detach it runs in the background. A second signal unmounts a mount that is in use.

Exit codes: 0 unmounted cleanly (with --detach: mounted), 1 failed, 2 wrong arguments or configuration.

Examples:

	export OSS_ACCESS_KEY_ID=... OSS_ACCESS_KEY_SECRET=...
	pailfs mount oss://bucket /mnt/data --endpoint https://oss-cn-hangzhou-internal.aliyuncs.com --region cn-hangzhou
	pailfs mount oss://bucket/imagenet /mnt/data --config /etc/pailfs/data.yaml --detach
	pailfs mount oss://bucket/frozen /mnt/data --endpoint oss-cn-hangzhou.aliyuncs.com --cache-dir /ssd/pailfs --cache-size 500GiB --read-only --immutable
	pailfs mount oss://bucket/patients /mnt/data --endpoint oss-cn-hangzhou.aliyuncs.com --audit /var/log/pailfs/patients.audit --audit-full block
	mount -t fuse.pailfs oss://bucket/imagenet /mnt/data -o config=/etc/pailfs/data.yaml,ro`
}

// Run mounts, and unless it detaches serves until the mount has ended.
func (c *mountCmd) Run(p command.Program, parsed *kong.Context, link *detached.Link) error {
	l, err := c.Load(p, parsed)
	if err != nil {
		return err
	}
	if l.Endpoint == "" {
		return command.Usage(errors.New("no endpoint is set: give --endpoint, for example https://oss-cn-hangzhou-internal.aliyuncs.com"))
	}
	if l.DropPrivileges {
		// A detached daemon has no more than who starts it.
		if err := machine.DropPrivileges(); err != nil {
			return l.Refuse("drop-privileges", err)
		}
	}
	if c.Mkdir {
		// One that is there is looked at below, also if its daemon is dead.
		if err := os.Mkdir(c.MountPoint, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make mount point %s: %w", c.MountPoint, err)
		}
	}
	if c.Detach && link == nil {
		return detached.Start(p, c.MountPoint)
	}
	at, stale, err := checkMachine(l, c.MountPoint)
	if err != nil {
		return err
	}
	log, err := daemonlog.Open(&l.Config, p.Stderr, link != nil)
	if err != nil {
		return l.Refuse("log-file", fmt.Errorf("%w: choose a path in a directory that exists and can be written", err))
	}
	defer func() { _ = log.Close() }() // nothing can be logged any more
	return serve(p, link, l, c.Source, at, stale, log)
}

// checkMachine refuses what cannot work on this machine. It changes nothing.
func checkMachine(l *config.Loaded, path string) (at string, stale *mountpoint.Mount, err error) {
	if at, stale, err = machine.CheckMountPoint(path); err != nil {
		return "", nil, err
	}
	if err := machine.CheckFUSE(l.AllowOther); err != nil {
		return "", nil, err
	}
	if err := machine.CheckMemory(l); err != nil {
		return "", nil, err
	}
	if err := machine.CheckCacheDir(l, at); err != nil {
		return "", nil, err
	}
	if err := machine.CheckAudit(l, at); err != nil {
		return "", nil, err
	}
	if err := reach.RefuseExposed(l); err != nil {
		return "", nil, err
	}
	return at, stale, nil
}

// serve opens the daemon, tells that it is ready and runs it to its end.
func serve(p command.Program, link *detached.Link, l *config.Loaded, source config.Location, at string, stale *mountpoint.Mount, log daemonlog.Log) error {
	signals := mounting.NewSignals(terminal.Is(p.Stderr))
	defer signals.Stop()
	notice := func(text string) {
		if !link.Notice(text) {
			p.Notice(text)
		}
	}
	// A signal during the start ends the start; one that comes too late for that is
	// still in signals and ends what was started.
	ctx, cancel := command.Interruptible()
	d, err := mounting.Open(ctx, mounting.Config{
		Settings: l, Source: source, At: at, Stale: stale, Log: log, Version: p.Version, Notice: notice,
	})
	interrupted := ctx.Err()
	cancel()
	switch {
	case err != nil && interrupted != nil:
		return errors.New("interrupted before the mount was ready")
	case err != nil:
		return err
	}
	if log.Lost {
		notice("mounted, but nothing keeps the daemon's log: there is no syslog here; set --log-file")
	}
	link.Ready()
	return d.Run(signals)
}
