package manifests

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"
	"github.com/dustin/go-humanize"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/reach"
	"github.com/pailfs/pailfs/cmd/terminal"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/manifest/publish"
)

// showCmd is `pailfs manifest show`.
type showCmd struct {
	Source     source `arg:"" placeholder:"oss://BUCKET[/PREFIX]|FILE" help:"A published manifest, or the file of one."`
	Generation uint64 `name:"generation" placeholder:"N" help:"This published generation, not the newest."`
	All        bool   `name:"all" help:"Show which generations are published."`
	JSON       bool   `name:"json" help:"Print JSON."`
	reach.StoreFlags
}

// Help gives examples.
func (showCmd) Help() string {
	return `Exit codes: 0 shown, 1 failed or nothing is published, 2 wrong arguments or configuration.

Examples:

	pailfs manifest show oss://bucket/imagenet
	pailfs manifest show oss://bucket/imagenet --all
	pailfs manifest show ./imagenet.manifest --json`
}

// shownManifest is what `pailfs manifest show --json` prints.
type shownManifest struct {
	Source      string            `json:"source"`
	Generation  uint64            `json:"generation"`
	Root        string            `json:"root"`
	Format      int               `json:"format"`
	Objects     int64             `json:"objects"`
	Directories int64             `json:"directories"`
	Bytes       int64             `json:"bytes"`
	FileBytes   int64             `json:"file_bytes"`
	Attrs       int64             `json:"objects_with_attributes"`
	Began       time.Time         `json:"began"`
	Ended       time.Time         `json:"ended"`
	BuiltBy     string            `json:"built_by"`
	From        string            `json:"from"`
	Properties  map[string]string `json:"properties,omitempty"`
	Problems    manifest.Problems `json:"problems"`
}

// shownGeneration is what `pailfs manifest show --all --json` prints of each.
type shownGeneration struct {
	publish.Facts
	Key       string `json:"key"`
	FileBytes int64  `json:"file_bytes"`
	Newest    bool   `json:"newest"`
}

// Run shows.
func (c *showCmd) Run(p command.Program, parsed *kong.Context) error {
	if c.Source.file != "" && (c.All || c.Generation != 0) {
		return command.Usage(errors.New("--all and --generation are about published manifests: name oss://bucket/prefix"))
	}
	ctx, cancel := command.Interruptible()
	defer cancel()
	r, err := c.Source.run(ctx, p, parsed, &c.StoreFlags)
	if err != nil {
		return orInterrupted(ctx, err, "")
	}
	if c.All {
		err = c.showAll(ctx, r)
	} else {
		err = c.showOne(ctx, r)
	}
	return errors.Join(orInterrupted(ctx, err, ""), r.close())
}

func (c *showCmd) showOne(ctx context.Context, r *run) error {
	s, name, err := lookAt(ctx, r, &c.Source, c.Generation)
	if err != nil {
		return err
	}
	i := s.Info()
	out := shownManifest{
		Source: name, Generation: i.Generation, Root: i.Root, Format: i.Version, Objects: i.Objects, Directories: i.Directories,
		Bytes: i.Bytes, FileBytes: i.FileBytes, Attrs: i.Attrs, Began: i.Began, Ended: i.Ended, BuiltBy: i.BuiltBy, From: i.Source,
		Properties: i.Properties, Problems: s.Problems(),
	}
	if c.JSON {
		return r.p.PrintJSON(out)
	}
	w := tabwriter.NewWriter(r.p.Stdout, 0, 8, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, name+"\t"+format+"\n", args...) }
	row("manifest", "%s", name)
	row("generation", "%d", i.Generation)
	row("of keys below", "%q", i.Root)
	row("objects", "%s in %s directories, %s", humanize.Comma(i.Objects), humanize.Comma(i.Directories), terminal.Size(i.Bytes))
	row("file", "%s, format %d, %.1f bytes an object", terminal.Size(i.FileBytes), i.Version, float64(i.FileBytes)/float64(max(1, i.Objects)))
	row("from", "%s", i.Source)
	row("looked at", "%s to %s", i.Began.Format(time.RFC3339), i.Ended.Format(time.RFC3339))
	row("built by", "%s", i.BuiltBy)
	row("attributes", "of %s objects", humanize.Comma(i.Attrs))
	for _, key := range slices.Sorted(maps.Keys(i.Properties)) {
		row(key, "%s", i.Properties[key])
	}
	if out.Problems.Count > 0 {
		row("not shown as they are", "%s keys", humanize.Comma(out.Problems.Count))
		for _, e := range out.Problems.Examples {
			row("", "%s: %s", e.Key, e.Reason)
		}
	}
	return w.Flush()
}

func (c *showCmd) showAll(ctx context.Context, r *run) error {
	newest, err := publish.Latest(ctx, r.bucket, r.location.Prefix)
	if err != nil {
		return err
	}
	all, err := publish.List(ctx, r.bucket, r.location.Prefix)
	if err != nil {
		return err
	}
	out := make([]shownGeneration, 0, len(all))
	for _, g := range all {
		out = append(out, shownGeneration{Facts: g.Facts, Key: g.Object.Key, FileBytes: g.Object.Size, Newest: g.Number == newest.Number})
	}
	if c.JSON {
		return r.p.PrintJSON(out)
	}
	w := tabwriter.NewWriter(r.p.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "GENERATION\tPUBLISHED\tOBJECTS\tBYTES\tFILE\tLOOKED AT\tBY")
	for _, g := range out {
		mark := ""
		if g.Newest {
			mark = " (newest)"
		}
		fmt.Fprintf(w, "%d%s\t%s\t%s\t%s\t%s\t%s\t%s\n", g.Number, mark, g.Published.Format(time.RFC3339), humanize.Comma(g.Objects),
			terminal.Size(g.Bytes), terminal.Size(g.FileBytes), g.Began.Format(time.RFC3339), g.Publisher)
	}
	return w.Flush()
}

// lookAt opens the manifest that a user named, where it lies.
func lookAt(ctx context.Context, r *run, from *source, number uint64) (*manifest.Snapshot, string, error) {
	if from.file != "" {
		s, err := r.open(from.file)
		return s, from.file, err
	}
	s, err := r.look(ctx, number)
	return s, from.location.String(), err
}

// lsCmd is `pailfs manifest ls`.
type lsCmd struct {
	Source     source `arg:"" placeholder:"oss://BUCKET[/PREFIX]|FILE" help:"A published manifest, or the file of one."`
	Path       string `arg:"" optional:"" help:"Directory or file below it; the root if not said."`
	Long       bool   `name:"long" short:"l" help:"Show kind, size, time and target."`
	Recursive  bool   `name:"recursive" short:"R" help:"List what is below as well, with whole paths."`
	Generation uint64 `name:"generation" placeholder:"N" help:"This published generation, not the newest."`
	JSON       bool   `name:"json" help:"Print one JSON object a line."`
	reach.StoreFlags
}

// Help gives examples.
func (lsCmd) Help() string {
	return `Names are those that a mount shows: see NAMES.md for keys that cannot be names.

Exit codes: 0 listed, 1 failed or no such name, 2 wrong arguments or configuration.

Examples:

	pailfs manifest ls oss://bucket/imagenet
	pailfs manifest ls oss://bucket/imagenet train/n01440764 -l
	pailfs manifest ls ./imagenet.manifest -R --json`
}

// listedName is what `pailfs manifest ls --json` prints of each name.
type listedName struct {
	Path   string    `json:"path"`
	Kind   string    `json:"kind"`
	Key    string    `json:"key"`
	Size   int64     `json:"size"`
	Time   time.Time `json:"time,omitzero"`
	ETag   string    `json:"etag,omitempty"`
	Target string    `json:"target,omitempty"`
}

// Run lists.
func (c *lsCmd) Run(p command.Program, parsed *kong.Context) error {
	if c.Source.file != "" && c.Generation != 0 {
		return command.Usage(errors.New("--generation is about published manifests: name oss://bucket/prefix"))
	}
	ctx, cancel := command.Interruptible()
	defer cancel()
	r, err := c.Source.run(ctx, p, parsed, &c.StoreFlags)
	if err != nil {
		return orInterrupted(ctx, err, "")
	}
	return errors.Join(orInterrupted(ctx, c.list(ctx, r), ""), r.close())
}

func (c *lsCmd) list(ctx context.Context, r *run) error {
	s, name, err := lookAt(ctx, r, &c.Source, c.Generation)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(r.p.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	if path := strings.Trim(c.Path, "/"); path != "" {
		slash := strings.LastIndexByte(path, '/')
		e, _, err := s.Lookup(ctx, path[:max(slash, 0)], path[slash+1:])
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s has no %q", name, path)
		}
		if err != nil {
			return err
		}
		if e.Kind != manifest.Directory {
			return errors.Join(c.print(ctx, r, w, path, &e), w.Flush())
		}
	}
	return errors.Join(c.directory(ctx, r, s, w, strings.Trim(c.Path, "/")), w.Flush())
}

// directory prints what is in a directory.
func (c *lsCmd) directory(ctx context.Context, r *run, s *manifest.Snapshot, w *tabwriter.Writer, dir string) error {
	after := ""
	for {
		entries, _, err := s.ReadDir(ctx, dir, after, 1000)
		if err != nil || len(entries) == 0 {
			return err
		}
		for i := range entries {
			path := entries[i].Name
			if c.Recursive && dir != "" {
				path = dir + "/" + path
			}
			if err := c.print(ctx, r, w, path, &entries[i]); err != nil {
				return err
			}
			if c.Recursive && entries[i].Kind == manifest.Directory {
				if err := c.directory(ctx, r, s, w, path); err != nil {
					return err
				}
			}
		}
		after = entries[len(entries)-1].Cursor
		if err := errors.Join(w.Flush(), ctx.Err()); err != nil {
			return err
		}
	}
}

// print prints one name.
func (c *lsCmd) print(_ context.Context, r *run, w *tabwriter.Writer, path string, e *manifest.Entry) error {
	out := listedName{Path: path, Key: e.Object.Key, Size: e.Object.Size, Time: e.Object.ModTime, ETag: e.Object.ETag}
	kind := "-"
	switch e.Kind {
	case manifest.Directory:
		out.Kind, kind = "directory", "d"
	case manifest.Symlink:
		out.Kind, kind = "symlink", "l"
		if e.Attr != nil {
			out.Target = e.Attr.Target
		}
	default:
		out.Kind = "file"
	}
	if c.JSON {
		return jsonLine(r.p.Stdout, out)
	}
	shown := path
	if strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		shown = fmt.Sprintf("%q", path) // a name must not steer the terminal
	}
	if !c.Long {
		_, err := fmt.Fprintln(r.p.Stdout, shown)
		return err
	}
	when := "-"
	if !out.Time.IsZero() {
		when = out.Time.Format(time.DateTime)
	}
	if out.Target != "" {
		shown += " -> " + fmt.Sprintf("%q", out.Target)
	}
	_, err := fmt.Fprintf(w, "%s\t%d\t%s\t %s\n", kind, out.Size, when, shown)
	return err
}
