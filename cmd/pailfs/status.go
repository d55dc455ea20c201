package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/ask"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/audit"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/cmd/terminal"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/prefetch/control"
	"github.com/pailfs/pailfs/prefetch/session"
)

// statusCmd is `pailfs status`.
type statusCmd struct {
	MountPoint string `arg:"" name:"mountpoint" help:"The mount, or any directory in it."`
	JSON       bool   `name:"json" xor:"what" help:"Print everything as JSON."`
	Page       bool   `name:"page" xor:"what" help:"Print the address of the status page, with which it tells names; it is a secret."`

	Timeout config.Duration `name:"timeout" default:"5s" placeholder:"TIME" help:"How long the daemon may take to answer."`
}

// Help gives examples.
func (statusCmd) Help() string {
	return `The daemon answers from what it knows: status works while the object store is down, and makes no request.

Exit codes: 0 the mount answers, 1 there is no mount or it cannot be asked, 2 wrong arguments, 3 its daemon is dead.

Examples:

	pailfs status /mnt/data
	pailfs status --json /mnt/data | jq .cache
	pailfs status --page /mnt/data`
}

// Run asks the daemon and prints its answer.
func (c *statusCmd) Run(p command.Program) error {
	at, m, err := ask.Above(c.MountPoint)
	if err != nil {
		return err
	}
	state, err := mountpoint.Probe(m.Path, time.Duration(c.Timeout))
	switch {
	case err != nil:
		return fmt.Errorf("status of %s: %w", at, err)
	case state == mountpoint.Dead:
		return ask.DeadMount(m)
	case state == mountpoint.Stuck:
		return fmt.Errorf("%s: the daemon of %s does not answer: wait, or end it with pailfs umount --force %s", at, m.Source, m.Path)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.Timeout))
	defer cancel()
	if c.Page {
		return printPage(ctx, p, at, m)
	}
	var raw json.RawMessage
	if err := ask.Call(ctx, at, wire.MethodStatus, nil, &raw); err != nil {
		if errors.Is(err, control.ErrDaemonGone) {
			return ask.DeadMount(m)
		}
		return fmt.Errorf("status of %s: %w", at, err)
	}
	if c.JSON {
		// What the daemon said, also where it is newer than this program.
		var document any
		if err := json.Unmarshal(raw, &document); err != nil {
			return fmt.Errorf("status of %s: %w", at, err)
		}
		encoder := json.NewEncoder(p.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(document)
	}
	var r wire.Status
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("status of %s: %w", at, err)
	}
	return printStatus(&r, p.Stdout, time.Now())
}

// printPage prints where the status page is.
func printPage(ctx context.Context, p command.Program, at string, m mountpoint.Mount) error {
	var page wire.PageAnswer
	err := ask.Call(ctx, at, wire.MethodPage, nil, &page)
	switch {
	case errors.Is(err, control.ErrDaemonGone):
		return ask.DeadMount(m)
	case errors.Is(err, &control.Error{Code: control.CodeRefused}):
		return fmt.Errorf("page of %s: not permitted: only root and the user who mounted it are told the address with which the page tells names; status says where it is without them", at)
	case err != nil:
		return fmt.Errorf("page of %s: %w", at, err)
	}
	if !page.Names {
		fmt.Fprintln(p.Stderr, "pailfs: this page tells no names: it is not served at a loopback address, and nothing on its way is encrypted")
	}
	fmt.Fprintln(p.Stdout, page.URL)
	return nil
}

// printStatus writes the report on one screen.
func printStatus(r *wire.Status, w io.Writer, now time.Time) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, terminal.Text(fmt.Sprintf(format, args...)))
	}

	fmt.Fprintf(tw, "%s at %s\n", terminal.Name(r.Source), terminal.Name(r.MountPoint))
	line("  daemon", "pid %d, up %s, version %s, %s resident", r.PID, config.Seconds(r.Uptime), r.Version, terminal.Size(r.Resident))
	line("  log", "%s", r.Log)
	if r.HTTP != "" {
		line("  page", "http://%s/ (--page prints the address with which it tells names)", r.HTTP)
		line("  metrics", "http://%s/metrics", r.HTTP)
	}
	if r.Audit != nil {
		line("  audit", "%s", auditText(r.Audit))
	}
	for _, text := range r.Warnings {
		line("  WARNING", "%s", text)
	}

	fsys := r.FileSystem
	fmt.Fprintln(tw, "file system")
	line("  mode", "%s", fsys.Mode)
	printNames(&r.Manifest, line, r.MetadataTTL)
	line("  passthrough", "%s", feature(fsys.Passthrough.On, fsys.Passthrough.Reason))
	line("  no-open", "%s", feature(fsys.NoOpen.On, fsys.NoOpen.Reason))
	readahead := "readahead unknown"
	if fsys.ReadAheadKiB > 0 {
		readahead = "readahead " + terminal.Size(int64(fsys.ReadAheadKiB)<<10)
	}
	if fsys.ReadAheadReason != "" {
		readahead += " (" + fsys.ReadAheadReason + ")"
	}
	line("  kernel", "protocol %s, %s, requests up to %s", fsys.Kernel, readahead, terminal.Size(int64(fsys.MaxRead)))
	line("  open", "%d files, %d directories; %d inodes known", fsys.OpenFiles, fsys.OpenDirs, fsys.Inodes)
	line("  opened", "%d through the daemon, %d in passthrough", fsys.Opens.Cached, fsys.Opens.Passthrough)
	line("  answered", "%d reads, %s; %d objects found replaced, %d errors", fsys.Reads, terminal.Size(fsys.ReadBytes), fsys.Stale, fsys.Errors)
	for _, o := range first(r.Latencies, 4) {
		line("  "+o.Operation, "%d, median %s, p99 %s", o.Count, config.Seconds(o.P50), config.Seconds(o.P99))
	}
	if fsys.Problems.Count > 0 {
		line("  awkward keys", "%d, see NAMES.md", fsys.Problems.Count)
		for _, p := range fsys.Problems.Examples[:min(3, len(fsys.Problems.Examples))] {
			line("", "%s: %s", p.Key, p.Reason)
		}
	}

	fmt.Fprintln(tw, "cache")
	printCache(r, line)

	printLoader(r, tw, line)
	if r.Writing != nil {
		fmt.Fprintln(tw, "writing")
		printWriting(r.Writing, now, line)
	}
	if r.Drain != nil {
		printDrain(r.Drain, now, line)
	} else if r.SpotNotice != "" && r.SpotNotice != wire.SpotOff {
		line("  spot notice", "%s", r.SpotNotice)
	}

	s := r.Store
	fmt.Fprintln(tw, "object store")
	where := s.Endpoint
	if s.Region != "" {
		where += ", region " + s.Region
	}
	line("  endpoint", "%s", where)
	line("  credentials", "%s", credentialsText(s.Credentials, now))
	line("  limiter", "%d of %d requests in flight, %d waiting; %d times told to slow down", sum(s.Limiter.InFlight), s.Limiter.Limit, sum(s.Limiter.Waiting), s.Limiter.Throttled)
	for _, o := range first(s.Requests, 5) {
		words := []string{strconv.FormatUint(o.Count, 10), "median " + config.Seconds(o.P50).String(), "p99 " + config.Seconds(o.P99).String()}
		if o.Bytes > 0 {
			words = append(words, terminal.Size(int64(o.Bytes)))
		}
		for _, outcome := range slices.Sorted(maps.Keys(o.Errors)) {
			words = append(words, fmt.Sprintf("%d %s", o.Errors[outcome], strings.ReplaceAll(outcome, "_", " ")))
		}
		line("  "+o.Operation, "%s", strings.Join(words, ", "))
	}
	return tw.Flush()
}

// auditText returns the audit for people.
func auditText(a *audit.Status) string {
	text := fmt.Sprintf("%d records written, %d waiting, %d dropped; when it is full: %s", a.Written, a.Queued, a.Dropped, a.Full)
	if a.To != "" {
		text = a.To + ": " + text
	}
	if a.Waiting > 0 {
		text += fmt.Sprintf("; %d OPERATIONS WAIT", a.Waiting)
	}
	if a.Error != "" {
		text += fmt.Sprintf("; FAILING since %s: %s", a.Since.UTC().Format(time.RFC3339), a.Error)
	}
	return text
}

// mostStreams is how many streams of a session are shown.
const mostStreams = 8

// printLoader writes what loaders announced, if there are any.
func printLoader(r *wire.Status, w io.Writer, line func(name, format string, args ...any)) {
	l := r.Loader
	if len(l.Sessions) == 0 && l.WarmJobs == 0 {
		return
	}
	fmt.Fprintln(w, "loader")
	line("  held", "%s of %s; %d objects in flight, %d warm jobs", terminal.Size(l.Charged), terminal.Size(l.Budget), l.InFlight, l.WarmJobs)
	line("  hints", "%d announced, %d not announced before use, %d released, %d leaked, %d beyond the quota, %d dropped", l.Totals.Preloaded,
		l.Totals.Implicit, l.Totals.Released, l.Totals.Leaked, l.Totals.Over, l.Totals.Dropped)
	for _, s := range l.Sessions {
		state := fmt.Sprintf("user %d, %d streams, holds %s", s.UID, len(s.Streams), terminal.Size(s.Charged))
		if s.Restored {
			state += ", waits for its worker"
		} else {
			state += ", heard of " + config.Seconds(s.Idle).String() + " ago"
		}
		line("  "+fmt.Sprintf("%s worker %d", s.Task, s.Worker), "%s", state)
		files := func(f session.Files) string { return fmt.Sprintf("%d (%s)", f.Files, terminal.Size(f.Bytes)) }
		line("", "requested %s, fetching %s, ready %s, active %s, streamed %s, failed %s", files(s.Requested), files(s.Fetching),
			files(s.Ready), files(s.Active), files(s.Streamed), files(s.Failed))
		line("", "released %s, leaked %s", files(s.Released), files(s.Leaked))
		for _, st := range s.Streams[:min(len(s.Streams), mostStreams)] {
			line("", "stream %d: %d announced and not in use, quota %d of %d", st.Index, st.Outstanding, st.Quota, s.Buffer)
		}
		if more := len(s.Streams) - mostStreams; more > 0 {
			line("", "and %d more streams, which --json shows", more)
		}
	}
}

// printWriting writes what waits for its upload.
func printWriting(w *writeback.Status, now time.Time, line func(name, format string, args ...any)) {
	waiting := "nothing: everything is in the object store"
	if w.Pending > 0 {
		waiting = fmt.Sprintf("%d files, %s; %d changes in all, the oldest since %s", w.DirtyFiles, terminal.Size(w.DirtyBytes), w.Pending,
			config.Seconds(now.Sub(w.Oldest).Seconds()))
	}
	line("  waiting", "%s", waiting)
	limit := "what the disk has"
	if w.StagedLimit > 0 {
		limit = terminal.Size(w.StagedLimit)
	}
	line("  staged", "%s of %s; the loss of power would take %d closed files", terminal.Size(w.StagedBytes), limit, w.NotDurable)
	line("  uploaded", "%d files, %s were sent; %d attempts failed since the start, %d changes wait to be tried again", w.UploadedFiles, terminal.Size(w.UploadedBytes), w.Failures, w.RetryingCount)
	for _, e := range w.Retrying[:min(3, len(w.Retrying))] {
		line("  retrying", "%s: %s", e.Path, e.Error)
	}
	for _, e := range w.Failing {
		line("  FAILING", "%s: %s", e.Path, e.Error)
	}
	if more := w.FailingCount - len(w.Failing); more > 0 {
		line("  FAILING", "%d more", more)
	}
	for _, e := range w.Restless {
		line("  restless", "%s, %s: it changed each time before all of it was sent, and is published when it rests", e.Path, terminal.Size(e.Bytes))
	}
	if more := w.RestlessCount - len(w.Restless); more > 0 {
		line("  restless", "%d more", more)
	}
	for _, c := range w.Conflicts[max(0, len(w.Conflicts)-5):] {
		kept := "a deletion that was not carried out"
		if c.Kept != "" {
			kept = "ours is " + c.Kept
		}
		line("  conflict", "%s at %s: %s", c.Path, c.Time.Format(time.RFC3339), kept)
	}
	if more := w.ConflictCount - min(5, len(w.Conflicts)); more > 0 {
		line("  conflict", "%d more", more)
	}
	for _, path := range w.Suspects[:min(5, len(w.Suspects))] {
		line("  LOST", "%s: the disk lost what was written; it is not published: write it anew, or see pailfs staged accept --help", path)
	}
	if more := w.SuspectCount - min(5, len(w.Suspects)); more > 0 {
		line("  LOST", "%d more", more)
	}
}

// printCache writes the tiers.
func printCache(r *wire.Status, line func(name, format string, args ...any)) {
	c := r.Cache
	reads := c.Reads
	all := reads.Memory + reads.SSD + reads.OSS
	line("  memory", "%s of %s, %s of it kept; answered %s of reads, %s", terminal.Size(c.Memory.Used), terminal.Size(c.Memory.Limit),
		terminal.Size(c.Memory.Kept), percent(reads.Memory, all), terminal.Size(reads.MemoryBytes))
	if ssd := c.SSD; ssd != nil {
		line("  ssd", "%s of %s in %d objects; answered %s of reads, %s", terminal.Size(ssd.Used), terminal.Size(ssd.Limit),
			ssd.Objects, percent(reads.SSD, all), terminal.Size(reads.SSDBytes))
		disk := ssd.Dir + ", " + ssd.State
		if ssd.LastError != "" {
			disk += fmt.Sprintf(" (%s at %s)", ssd.LastError, ssd.LastErrorTime.Format(time.RFC3339))
		}
		line("  disk", "%s", disk)
		line("  writing", "%s waiting, %s written, %s dropped; %s evicted", terminal.Size(ssd.Queued), terminal.Size(ssd.Written),
			terminal.Size(ssd.DroppedBytes), terminal.Size(ssd.EvictedBytes))
	} else {
		line("  ssd", "none: no cache-dir is set")
	}
	line("  oss", "waited for by %s of reads, %s; %d requests in flight", percent(reads.OSS, all), terminal.Size(reads.OSSBytes), c.Fetched.InFlight)
	line("  fetched", "%s on demand, %s ahead of readers, %s for prefetch", terminal.Size(c.Fetched.DemandBytes),
		terminal.Size(c.Fetched.ReadaheadBytes), terminal.Size(c.Fetched.FetchBytes))
	if c.Corrupted > 0 {
		line("  corrupted", "%d objects did not match the object store's checksum", c.Corrupted)
	}
	if c.SSD != nil && c.SSD.Damaged > 0 {
		line("  damaged", "%d pieces on the disk were not as they had been left and were fetched again", c.SSD.Damaged)
	}
}

// printNames writes where names come from.
func printNames(r *wire.Names, line func(name, format string, args ...any), metadataTTL float64) {
	text := r.Mode + " (" + r.Reason + ")"
	if r.Asked != r.Mode && r.File == "" {
		text = fmt.Sprintf("%s, asked for %s (%s)", r.Mode, r.Asked, r.Reason)
	}
	if r.Mode == config.ManifestOff {
		line("  names", "manifest %s; listings are believed for %s", text, config.Seconds(metadataTTL))
		return
	}
	line("  names", "manifest %s", text)
	what := fmt.Sprintf("generation %d", r.Generation)
	if r.File != "" {
		what = r.File
	}
	line("  manifest", "%s: %d objects, %s; built %s ago", what, r.Objects, terminal.Size(r.Bytes), config.Seconds(r.Age))
	if f := r.Follow; f != nil && f.Failing > 0 {
		line("  FOLLOWING", "failed %d times, last at %s: %s", f.Failing, f.LastErrorTime.Format(time.RFC3339), f.LastError)
	}
	if f := r.Follow; f != nil && f.Asked > 0 {
		line("  out of date", "%d names differ from the manifest and are asked of the bucket", f.Asked)
	}
	if r.Damaged > 0 {
		line("  DAMAGED", "%d times, first: %s", r.Damaged, r.Damage)
	}
}

// printDrain writes how far draining is.
func printDrain(r *wire.Drain, now time.Time, line func(name, format string, args ...any)) {
	left := fmt.Sprintf("%s left", config.Seconds(r.Deadline.Sub(now).Seconds()))
	if !now.Before(r.Deadline) {
		left = "the deadline has passed"
	}
	if r.Safe {
		line("  DRAINING", "%s, %s: everything is in the object store", r.Reason, left)
		return
	}
	line("  DRAINING", "%s, %s: %d changes, %s, are NOT in the object store", r.Reason, left, r.Unsafe, terminal.Size(r.UnsafeBytes))
}

// percent returns the share of part in whole.
func percent(part, whole int64) string {
	if whole == 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

// credentialsText returns the credentials for people.
func credentialsText(c wire.Credentials, now time.Time) string {
	text := c.Kind
	if c.AccessKeyID != "" {
		text += ", key " + c.AccessKeyID
	}
	if c.Expires != nil {
		if left := c.Expires.Sub(now); left > 0 {
			text += ", expire in " + left.Round(time.Second).String()
		} else {
			text += ", EXPIRED " + c.Expires.Format(time.RFC3339)
		}
	}
	if c.Error != "" {
		text += ", CANNOT BE RENEWED: " + c.Error
	}
	return text
}

// feature returns on or off with the reason.
func feature(on bool, reason string) string {
	text := "off"
	if on {
		text = "on"
	}
	if reason != "" {
		text += ": " + reason
	}
	return text
}

// first returns the first n figures.
func first(f []wire.LatencyStats, n int) []wire.LatencyStats { return f[:min(n, len(f))] }

// sum adds up what belongs to the classes.
func sum(byClass map[string]int) int {
	total := 0
	for _, n := range byClass {
		total += n
	}
	return total
}
