package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/cmd/terminal"
	"github.com/pailfs/pailfs/fs/writeback"
)

// stagedCmd is `pailfs staged`.
type stagedCmd struct {
	Ls      stagedLsCmd      `cmd:"" help:"List what was written and is not in the object store."`
	Resume  stagedResumeCmd  `cmd:"" help:"Upload it, without a mount."`
	Export  stagedExportCmd  `cmd:"" help:"Copy its bytes to another directory."`
	Discard stagedDiscardCmd `cmd:"" help:"Give it up."`
	Accept  stagedAcceptCmd  `cmd:"" help:"Take back a file of a mount that the disk lost something of."`
}

// Help gives examples.
func (stagedCmd) Help() string {
	return `What a mount had not uploaded when its daemon, or its machine, died waits in the cache directory: the next mount with that --cache-dir publishes it, and so does resume. The directory may have been moved to another machine.

Examples:

	pailfs staged ls --cache-dir /ssd/pailfs
	pailfs staged resume --cache-dir /ssd/pailfs --endpoint https://oss-cn-hangzhou-internal.aliyuncs.com
	pailfs staged export --cache-dir /ssd/pailfs /tmp/rescued
	pailfs staged discard --cache-dir /ssd/pailfs --path ckpt/step-500 --yes
	pailfs staged accept /mnt/ckpt/step-500`
}

// stagedFlags are those of every command about a staging directory.
type stagedFlags struct {
	CacheDir string `name:"cache-dir" required:"" placeholder:"DIR" help:"The --cache-dir of the mount."`
}

// staging returns the staging directory.
func (f *stagedFlags) staging() (string, error) {
	dir, err := filepath.Abs(f.CacheDir)
	if err != nil {
		return "", command.Usage(err)
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", command.Usage(fmt.Errorf("--cache-dir %s does not exist: give the one of the mount", f.CacheDir))
	case err != nil:
		return "", command.Usage(fmt.Errorf("--cache-dir: %w", err))
	case !info.IsDir():
		return "", command.Usage(fmt.Errorf("--cache-dir %s is no directory: give the one of the mount", f.CacheDir))
	}
	return filepath.Join(dir, wire.StagingName), nil
}

// explain adds what can be done about a directory that was refused.
func (f *stagedFlags) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, writeback.ErrInUse):
		return fmt.Errorf("%w: unmount it first; pailfs status and pailfs flush tell of a mount", err)
	case errors.Is(err, os.ErrNotExist) && !errors.Is(err, writeback.ErrNothing):
		return fmt.Errorf("--cache-dir %s has no directory %s: no mount that can be written has used it", f.CacheDir, wire.StagingName)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: run it as the user who mounted, or as root", err)
	}
	return err
}

// stagedLsCmd is `pailfs staged ls`.
type stagedLsCmd struct {
	stagedFlags
	JSON bool `name:"json" help:"Print JSON."`
}

// Help gives examples.
func (stagedLsCmd) Help() string {
	return `Changes are listed in the order in which they will be published. A suspect file is one that the disk lost some of, LOST in pailfs status: it is never published by itself, but what is left can be exported, and pailfs staged accept takes it back once it is mounted. An unfinished one was never closed: the next mount, or resume, drops it. Nothing is changed.

Exit codes: 0 listed, 1 failed, 2 wrong arguments.

Examples:

	pailfs staged ls --cache-dir /ssd/pailfs
	pailfs staged ls --cache-dir /ssd/pailfs --json | jq '.pending[].path'`
}

// Run lists.
func (c *stagedLsCmd) Run(p command.Program) error {
	dir, err := c.staging()
	if err != nil {
		return err
	}
	r, err := writeback.Inspect(dir)
	if err != nil {
		return c.explain(err)
	}
	if c.JSON {
		encoder := json.NewEncoder(p.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	bytes := int64(0)
	for _, s := range r.Pending {
		bytes += s.Bytes
	}
	fmt.Fprintf(p.Stdout, "oss://%s/%s at %s: %d changes are not in the object store, %s\n", r.Bucket, r.Prefix, r.Endpoint, len(r.Pending), terminal.Size(bytes))
	if err := printStaged(p, r.Pending, r.Suspects, r.Unfinished); err != nil {
		return err
	}
	for _, c := range r.Conflicts {
		kept := "ours was not carried out"
		if c.Kept != "" {
			kept = "ours is " + terminal.Name(c.Kept)
		}
		fmt.Fprintf(p.Stdout, "conflict at %s: %s holds somebody else's, %s\n", c.Time.Format(time.RFC3339), terminal.Name(c.Path), kept)
	}
	if r.Uploads > 0 {
		fmt.Fprintf(p.Stdout, "%d multipart uploads have begun: resume and the next mount complete or abort them\n", r.Uploads)
	}
	if r.TornBytes > 0 {
		fmt.Fprintf(p.Stdout, "the journal ends with %d bytes of a record that was being written: no call that returned is in it, unless the disk is damaged\n", r.TornBytes)
	}
	for _, name := range r.SetAside {
		fmt.Fprintf(p.Stdout, "%s: bytes that an earlier start cut off the journal\n", filepath.Join(dir, name))
	}
	return nil
}

// printStaged prints lists of changes as one table.
func printStaged(p command.Program, lists ...[]writeback.Staged) error {
	tw := tabwriter.NewWriter(p.Stdout, 0, 8, 2, ' ', 0)
	empty := true
	for _, list := range lists {
		for _, s := range list {
			if empty {
				fmt.Fprintln(tw, "CHANGE\tBYTES\tSINCE\tPATH\tREMARK")
			}
			empty = false
			size := strconv.FormatInt(s.Bytes, 10)
			if s.Doing == "delete" || s.Doing == "mkdir" {
				size = "-"
			}
			since := "-"
			if !s.Since.IsZero() {
				since = humanize.Time(s.Since)
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", s.Doing, size, since, terminal.Name(s.Path), remark(s))
		}
	}
	return tw.Flush()
}

// remark says what is special about a change.
func remark(s writeback.Staged) string {
	switch {
	case s.Suspect:
		return "suspect: the disk lost some of it; mounted, pailfs staged accept takes back what is there"
	case s.Unfinished:
		return "unfinished: never closed"
	case s.Partial:
		return "partial: what was not written is to be copied from " + terminal.Name(s.Base)
	case s.Changed:
		return "written to after its last close"
	case s.From != "":
		return "from " + terminal.Name(s.From)
	}
	return ""
}

// stagedExportCmd is `pailfs staged export`.
type stagedExportCmd struct {
	stagedFlags
	To   string `arg:"" name:"to" placeholder:"TO" help:"Directory to copy to; it is made if its parent exists."`
	Path string `name:"path" placeholder:"PATH" help:"A file or directory, as the mount showed it, relative to the mount; everything if not given."`
}

// Help gives examples.
func (stagedExportCmd) Help() string {
	return `Files keep their paths below the directory, and nothing that exists is overwritten. Of a file that the disk lost some of what is left gets the ending .suspect-ID, one that was never closed .unfinished-ID, and what was written of a large object that was not fetched .partial, with a list of where it belongs. The cache directory stays as it is.

Exit codes: 0 all of it is there, whole, 1 something is not (it is named), 2 wrong arguments.

Examples:

	pailfs staged export --cache-dir /ssd/pailfs /tmp/rescued
	pailfs staged export --cache-dir /ssd/pailfs --path ckpt/step-500 /tmp/rescued`
}

// Run copies.
func (c *stagedExportCmd) Run(p command.Program) error {
	dir, err := c.staging()
	if err != nil {
		return err
	}
	ctx, stop := command.Interruptible()
	defer stop()
	p.Progress("copying")
	files, err := writeback.Export(ctx, dir, cleanPath(c.Path), c.To)
	var bytes int64
	failed, odd := 0, 0
	for _, f := range files {
		switch {
		case f.Err != nil:
			failed++
			p.Notice(fmt.Sprintf("%s: %s", terminal.Name(f.Path), command.OneLine(f.Err)))
			continue
		case f.Suspect:
			odd++
			fmt.Fprintf(p.Stderr, "pailfs: %s is suspect: the disk lost some of it\n", terminal.Name(f.To))
		case f.Unfinished:
			odd++
			fmt.Fprintf(p.Stderr, "pailfs: %s is unfinished: it was never closed\n", terminal.Name(f.To))
		case f.Partial:
			odd++
			fmt.Fprintf(p.Stderr, "pailfs: %s has only what was written, with holes for what is in the object %s; %s.extents lists where it belongs\n",
				terminal.Name(f.To), terminal.Name(f.Base), terminal.Name(f.To))
		}
		bytes += f.Bytes
		fmt.Fprintln(p.Stdout, terminal.Name(f.To))
	}
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted; what was copied is whole, run it again with another directory to copy all")
	case err != nil:
		return c.explain(err)
	case failed > 0:
		return fmt.Errorf("%d of %d files are not in %s", failed, len(files), c.To)
	case odd > 0:
		return fmt.Errorf("%d of %d files, %s, are in %s, but %d are suspect, unfinished or partial", len(files), len(files), terminal.Size(bytes), c.To, odd)
	}
	fmt.Fprintf(p.Stderr, "pailfs: %d files, %s, are in %s\n", len(files), terminal.Size(bytes), c.To)
	return nil
}

// cleanPath makes a path of the mount what the staging directory calls it.
func cleanPath(path string) string {
	path = strings.Trim(filepath.Clean("/"+path), "/")
	return path
}

// stagedDiscardCmd is `pailfs staged discard`.
type stagedDiscardCmd struct {
	stagedFlags
	Path string `name:"path" xor:"what" required:"" placeholder:"PATH" help:"A file or directory, relative to the mount."`
	All  bool   `name:"all" xor:"what" required:"" help:"Everything."`
	Yes  bool   `name:"yes" help:"Do it. Without this it is only said what would be lost."`
}

// Help gives examples.
func (stagedDiscardCmd) Help() string {
	return `Says exactly what is lost, and with --yes removes it: the object store keeps, or shows again, what it has at those names. Of a file that was renamed the old name comes back.

Exit codes: 0 given up, 1 failed, 2 wrong arguments, or --yes is missing.

Examples:

	pailfs staged discard --cache-dir /ssd/pailfs --path ckpt/step-500
	pailfs staged discard --cache-dir /ssd/pailfs --path ckpt/step-500 --yes
	pailfs staged discard --cache-dir /ssd/pailfs --all --yes`
}

// Run gives up.
func (c *stagedDiscardCmd) Run(p command.Program) error {
	dir, err := c.staging()
	if err != nil {
		return err
	}
	path := cleanPath(c.Path)
	if path == "" && !c.All {
		return command.Usage(errors.New("--path names the whole mount: say --all to give up everything"))
	}
	lost := 0
	err = writeback.Discard(dir, path, func(list []writeback.Staged) error {
		lost = len(list)
		if err := printStaged(p, list); err != nil {
			return err
		}
		if !c.Yes {
			return command.Usage(fmt.Errorf("nothing was given up: with --yes these %d changes are lost for good", lost))
		}
		return nil
	})
	if errors.Is(err, writeback.ErrNothing) && c.All {
		fmt.Fprintln(p.Stderr, "pailfs: nothing is left there")
		return nil
	}
	if err != nil {
		return c.explain(err)
	}
	fmt.Fprintf(p.Stderr, "pailfs: %d changes were given up\n", lost)
	return nil
}
