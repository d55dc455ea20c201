package doctor

import (
	"context"

	"github.com/alecthomas/kong"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/reach"
)

// Cmd is `pailfs doctor`.
type Cmd struct {
	Source    *config.Location `arg:"" optional:"" name:"source" placeholder:"oss://bucket/prefix" help:"A bucket, or a prefix of it, that is to be reached from here."`
	JSON      bool             `name:"json" help:"Print the findings as JSON."`
	WriteTest bool             `name:"write-test" help:"Also write an object below the prefix, and remove it."`
	CacheDir  string           `name:"cache-dir" placeholder:"DIR" group:"cache" help:"Directory of the cache, whose disk is measured with 64 MiB."`

	reach.StoreFlags
}

// Help gives examples.
func (Cmd) Help() string {
	return `Looks whether this host is what a mount needs (kernel, FUSE, passthrough, limits, the cache's disk) and, with a bucket, whether that can be reached (endpoint, clock, keys, rights, region, throttling). Each line is ok, warn or fail, with what to do. It changes nothing, unless --write-test is given. OUTPUT.md says what --json gives.

Exit codes: 0 all is well, 1 there are warnings, 2 something fails, or the arguments are wrong.

Examples:

	pailfs doctor
	pailfs doctor --cache-dir /ssd/pailfs
	pailfs doctor oss://bucket/train --endpoint https://oss-cn-hangzhou-internal.aliyuncs.com
	pailfs doctor --json oss://bucket/ckpt --write-test`
}

// Run looks.
func (c *Cmd) Run(p command.Program, parsed *kong.Context) error {
	ctx, stop := command.Interruptible()
	defer stop()
	cacheDir := c.CacheDir
	if cacheDir == "" {
		cacheDir = p.Env("PAILFS_CACHE_DIR")
	}
	var checks []check
	if c.Source == nil {
		checks = host(cacheDir)
	} else {
		l, err := c.LoadWith(p, parsed, func(s *config.Config) { s.CacheDir = c.CacheDir }, "cache-dir")
		if err != nil {
			return err
		}
		checks = append(host(l.CacheDir), bucket{*c.Source, l, c.WriteTest}.checks(ctx, p)...)
	}
	return c.tell(ctx, p, checks)
}

// The exit codes of a doctor who found something.
const (
	exitWarn = 1
	exitFail = 2
)

// tell prints the findings.
func (c *Cmd) tell(ctx context.Context, p command.Program, checks []check) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	findings := make([]Finding, len(checks))
	for i, check := range checks {
		findings[i] = check.find()
	}
	r := newReport(findings)
	var err error
	if c.JSON {
		err = p.PrintJSON(r)
	} else {
		err = r.write(p.Stdout)
	}
	switch {
	case err != nil:
		return err
	case r.Level == Fail:
		return &command.Error{Code: exitFail}
	case r.Level == Warn:
		return &command.Error{Code: exitWarn}
	}
	return nil
}
