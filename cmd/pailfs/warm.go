package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/ask"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/terminal"
	"github.com/pailfs/pailfs/prefetch/control"
	"github.com/pailfs/pailfs/prefetch/residency"
	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/warm"
)

// batchBytes bounds the paths of one request, which may have 16,344 bytes with
// everything around them.
const batchBytes = 12 << 10

// warmCmd is `pailfs warm`.
type warmCmd struct {
	Paths    []string `arg:"" name:"path" help:"Files and folders in a mount."`
	FromFile string   `name:"from-file" placeholder:"LIST" help:"Read more paths from a file, one a line, or - for standard input. They are relative to PATH, which is then one folder."`
	Check    bool     `name:"check" help:"Fetch nothing, and say how much is in the cache already."`
	Each     bool     `name:"each" help:"Report every file of a folder, not only those that fail."`
	JSON     bool     `name:"json" help:"Print results as JSON, one object a line, with the totals last."`
}

// Help gives examples.
func (warmCmd) Help() string {
	return `What is in the cache already costs nothing, so an interrupted run is resumed by running it again. Reads of the mount come before it. A run brings no more than the cache has room for, and says of the rest that it had none.

Exit codes: 0 everything is in the cache, 1 something is not, 2 wrong arguments, 3 the daemon is dead.

Examples:

	pailfs warm /mnt/data/train
	pailfs warm /mnt/data --from-file epoch1.txt
	pailfs warm --check --json /mnt/data/train
	find /mnt/data/train -name '*.idx' -printf '%P\n' | pailfs warm /mnt/data/train --from-file - --json`
}

// Run warms the paths.
func (c *warmCmd) Run(p command.Program) error {
	at, paths, err := ask.Together(c.Paths)
	if err != nil {
		return err
	}
	if c.FromFile != "" {
		if len(c.Paths) != 1 {
			return command.Usage(fmt.Errorf("--from-file needs one folder that its paths are relative to, not %d", len(c.Paths)))
		}
		if paths, err = readList(c.FromFile, paths[0]); err != nil {
			return err
		}
	}
	ctx, stop := command.Interruptible()
	defer stop()
	client, err := control.Dial(at)
	if err != nil {
		return ask.Error(at, err)
	}
	if c.Check {
		err = errors.Join(warmCheck(ctx, p, client, paths, c.JSON), client.Close())
	} else {
		w := &warming{program: p, client: client, json: c.JSON}
		err = errors.Join(w.run(ctx, paths, c.Each), client.Close())
	}
	if ctx.Err() != nil {
		return errors.New("interrupted; run it again to go on")
	}
	return ask.Error(at, err)
}

// readList returns the paths that a file lists, below base.
func readList(name, base string) (paths []string, err error) {
	f := os.Stdin
	if name != "-" {
		if f, err = os.Open(name); err != nil {
			return nil, command.Usage(fmt.Errorf("read --from-file: %w", err))
		}
		defer func() { _ = f.Close() }() // only read
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<16)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSuffix(strings.TrimSpace(lines.Text()), "/")
		if line == "" {
			continue
		}
		path := strings.TrimPrefix(line, "./")
		if base != "" {
			path = base + "/" + path
		}
		if err := rights.CheckPath(path); err != nil {
			return nil, command.Usage(fmt.Errorf("--from-file %s, line %d: %w", name, n, err))
		}
		paths = append(paths, path)
	}
	if err := lines.Err(); err != nil {
		return nil, command.Usage(fmt.Errorf("read --from-file %s: %w", name, err))
	}
	return paths, nil
}

// batches cuts paths into pieces that one request can carry.
func batches(paths []string) [][]string {
	var out [][]string
	first, size := 0, 0
	for i, path := range paths {
		if size += len(path) + 8; size > batchBytes && i > first {
			out = append(out, paths[first:i])
			first, size = i, len(path)+8
		}
	}
	return append(out, paths[first:])
}

// warming is one run of `pailfs warm`.
type warming struct {
	program command.Program
	client  *control.Client
	json    bool
	job     string
	last    warm.Progress
	bar     *terminal.Progress
	failed  bool
}

func (w *warming) run(ctx context.Context, paths []string, each bool) error {
	var opened control.WarmOpenResult
	if err := w.client.Call(ctx, "warm.open", control.WarmOpenParams{Each: each}, &opened); err != nil {
		return err
	}
	w.job = opened.Job
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), mountpoint.Patience)
		defer cancel()
		// The daemon gives up a job that nobody asks after.
		_ = w.client.Call(closing, "warm.close", control.WarmCloseParams{Job: w.job}, nil)
	}()
	w.bar = terminal.NewByteProgress(w.program.Stderr)
	defer w.bar.Clear()
	pieces := batches(paths)
	for i, piece := range pieces {
		for first := true; first || len(piece) > 0; first = false {
			var added control.WarmAddResult
			err := w.client.Call(ctx, "warm.add", control.WarmAddParams{Job: w.job, Paths: piece, Last: i == len(pieces)-1}, &added)
			if err != nil {
				return err
			}
			piece = piece[added.Accepted:]
			if len(piece) > 0 {
				if err := w.progress(ctx); err != nil {
					return err
				}
			}
		}
	}
	for !w.last.Finished {
		if err := w.progress(ctx); err != nil {
			return err
		}
	}
	return w.finish()
}

// progress asks for news and shows them.
func (w *warming) progress(ctx context.Context) error {
	next := w.last.Next
	w.last = warm.Progress{}
	if err := w.client.Call(ctx, "warm.progress", control.WarmProgressParams{Job: w.job, After: next}, &w.last); err != nil {
		return err
	}
	w.bar.Show(fmt.Sprintf("%d of %d files", w.last.DoneFiles, w.last.Files), w.last.DoneBytes, w.last.Bytes)
	for _, r := range w.last.Results {
		w.failed = w.failed || r.State != "ready"
		if err := w.show(r); err != nil {
			return err
		}
	}
	return nil
}

func (w *warming) show(r warm.Result) error {
	path := r.Path
	if path == "" {
		path = "."
	}
	switch {
	case w.json:
		return json.NewEncoder(w.program.Stdout).Encode(r)
	case r.Error != "":
		_, err := fmt.Fprintf(w.program.Stdout, "%s: %s: %s\n", path, r.State, strings.Join(strings.Fields(r.Error), " "))
		return err
	default:
		_, err := fmt.Fprintf(w.program.Stdout, "%s: %s, %d files, %s\n", path, r.State, r.Files, terminal.Size(r.Bytes))
		return err
	}
}

// finish shows the totals.
func (w *warming) finish() error {
	w.bar.Clear()
	t := w.last
	t.Results, t.Next = nil, 0
	var err error
	if w.json {
		err = json.NewEncoder(w.program.Stdout).Encode(map[string]any{"total": t})
	} else {
		denied := ""
		if t.Denied > 0 {
			denied = fmt.Sprintf(", %d of them may not be read", t.Denied)
		}
		_, err = fmt.Fprintf(w.program.Stdout, "%d files, %s in the cache, %s of it fetched now; %d failed%s\n", t.DoneFiles, terminal.Size(t.DoneBytes), terminal.Size(t.FetchedBytes), t.Failed, denied)
	}
	if err == nil && w.failed {
		err = fmt.Errorf("%d of %d files or paths could not be brought", t.Failed, t.Files)
	}
	return err
}

// evictCmd is `pailfs evict`.
type evictCmd struct {
	Paths []string `arg:"" name:"path" help:"Files and folders in a mount."`
	JSON  bool     `name:"json" help:"Print results as JSON, one object a line."`
}

// Help gives examples.
func (evictCmd) Help() string {
	return `Only root and the user of the daemon may evict. What is open, or held by a loader, stays. Nothing of the bucket is touched.

Exit codes: 0 done, 1 something stayed or could not be found, 2 wrong arguments, 3 the daemon is dead.

Examples:

	pailfs evict /mnt/data/train
	pailfs evict --json /mnt/data/a.bin /mnt/data/b.bin`
}

// Run evicts the paths.
func (c *evictCmd) Run(p command.Program) error {
	at, paths, err := ask.Together(c.Paths)
	if err != nil {
		return err
	}
	ctx, stop := command.Interruptible()
	defer stop()
	client, err := control.Dial(at)
	if err != nil {
		return ask.Error(at, err)
	}
	err = errors.Join(c.evict(ctx, p.Stdout, client, paths), client.Close())
	return ask.Error(at, err)
}

func (c *evictCmd) evict(ctx context.Context, w io.Writer, client *control.Client, paths []string) error {
	stayed := int64(0)
	for _, piece := range batches(paths) {
		var result control.EvictResult
		if err := client.Call(ctx, "evict", control.EvictParams{Paths: piece}, &result); err != nil {
			return err
		}
		for _, r := range result.Results {
			if err := c.show(w, r); err != nil {
				return err
			}
			stayed += r.Held
			if r.Error != "" {
				stayed++
			}
		}
	}
	if stayed > 0 {
		return fmt.Errorf("%d files or paths were not evicted", stayed)
	}
	return nil
}

func (c *evictCmd) show(w io.Writer, r residency.Evicted) error {
	if c.JSON {
		return json.NewEncoder(w).Encode(r)
	}
	path := r.Path
	if path == "" {
		path = "."
	}
	text := fmt.Sprintf("%s: %s freed, %d files", path, terminal.Size(r.Bytes), r.Files)
	if r.Held > 0 {
		text += fmt.Sprintf(", %d are in use or held", r.Held)
	}
	if r.Error != "" {
		text += ": " + strings.Join(strings.Fields(r.Error), " ")
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
