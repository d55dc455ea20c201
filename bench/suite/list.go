package suite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/pailfs/pailfs/bench/bare"
	"github.com/pailfs/pailfs/bench/child"
	"github.com/pailfs/pailfs/bench/names"
	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/bench/workload"
	"github.com/pailfs/pailfs/bench/workload/list"
)

// measureList takes samples of all subjects in turn: the first listing of a client
// that was just started, and the second one.
func (r *Runner) measureList(ctx context.Context, w workload.Workload, o Options, subjects ...Subject) (_ []result.Series, err error) {
	disk := filepath.Join(r.cfg.Work, "disk", "names-"+w.List.Tree)
	defer func() { err = errors.Join(err, os.RemoveAll(disk)) }()
	bucket := false
	for _, s := range subjects {
		if s.Driver.Source() == rig.FromBucket {
			bucket = true
		} else if err := list.Trees(r.cfg.Sizes)[w.List.Tree].WriteDisk(ctx, disk); err != nil {
			return nil, err
		}
	}
	if bucket {
		if err := r.serveNames(ctx, w.List.Tree, o.Link); err != nil {
			return nil, err
		}
		defer func() {
			err = errors.Join(err, r.stopServer(), os.RemoveAll(filepath.Join(r.cfg.Work, "names")))
		}()
	}
	runs := r.cfg.Runs
	if o.Runs > 0 {
		runs = o.Runs
	}
	series := make([]result.Series, 2*len(subjects))
	for i, s := range subjects {
		for j, name := range []string{w.Name, w.Name + workload.ListedAgain} {
			series[2*i+j] = result.Series{Workload: name, Client: s.label(), Link: o.Link.String(), Metric: w.Metric}
		}
	}
	spent := make([]time.Duration, len(subjects))
	for range runs {
		for i, s := range subjects {
			first, again := &series[2*i], &series[2*i+1]
			if first.Failed != "" || o.exhausted(spent[i]) {
				continue
			}
			began := time.Now()
			samples, err := r.listTwice(ctx, w, s, disk)
			spent[i] += time.Since(began)
			if err != nil && o.Tolerate && ctx.Err() == nil {
				first.Failed, again.Failed = err.Error(), err.Error()
				r.cfg.Say("  %-16s %-28s failed: %v", w.Name, s.label(), err)
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("measure %s: %s: %w", w.Name, s.label(), err)
			}
			first.Samples, again.Samples = append(first.Samples, samples[0]), append(again.Samples, samples[1])
			r.cfg.Say("  %-16s %-28s %s, again %s", w.Name, s.label(), result.ShowValue(samples[0].Value, w.Metric), result.ShowValue(samples[1].Value, w.Metric))
		}
	}
	for i := range series {
		if len(series[i].Samples) > 0 {
			series[i].Value = result.Median(series[i].Values())
		}
	}
	return series, nil
}

// serveNames makes the server run over a bucket that holds tree.
func (r *Runner) serveNames(ctx context.Context, tree string, link rig.Link) error {
	if err := r.stopServer(); err != nil {
		return err
	}
	r.cfg.Say("storing %d objects", list.Trees(r.cfg.Sizes)[tree].All())
	keys, write := io.Pipe()
	go func() { write.CloseWithError(writeTreeKeys(write, tree, list.Trees(r.cfg.Sizes)[tree])) }()
	err := rig.Fill(ctx, r.cfg.Programs, filepath.Join(r.cfg.Work, "names"), "names", keys)
	_ = keys.Close() // ends the writer if the reader has failed
	if err != nil {
		return err
	}
	if link.Profile == "none" {
		link.Profile = ""
	}
	r.server, err = r.namesServer(ctx, link)
	return err
}

func writeTreeKeys(w io.Writer, root string, t names.Tree) error {
	out := bufio.NewWriter(w)
	for d := range t.Dirs {
		for i := range t.Files {
			fmt.Fprintln(out, filepath.Join(root, t.Dir(d), names.File(i)))
		}
	}
	return out.Flush()
}

// listTwice starts a client and lists with it twice.
func (r *Runner) listTwice(ctx context.Context, w workload.Workload, s Subject, disk string) (samples [2]result.Sample, err error) {
	place, err := r.place("names")
	if err != nil {
		return samples, err
	}
	place.Disk, place.Prefix = disk, w.List.Tree+"/"
	defer func() { err = errors.Join(err, os.RemoveAll(place.Work)) }()
	session, err := s.Driver.Start(ctx, place)
	if err != nil {
		return samples, err
	}
	defer func() { err = errors.Join(err, session.Stop(context.WithoutCancel(ctx))) }()
	for i := range samples {
		samples[i], _, err = r.timed(ctx, session.Daemons(), func() (reader.Outcome, child.CPU, error) {
			all := list.Trees(r.cfg.Sizes)[w.List.Tree].All()
			if session.Root() == "" {
				seconds, err := listBucket(ctx, place, all)
				return reader.Outcome{Seconds: seconds, Ops: int64(all)}, child.CPU{}, err
			}
			seconds, cpu, err := r.listingCost(ctx, session.Root(), w.List.Tree, w.List.Pattern)
			return reader.Outcome{Seconds: seconds, Ops: int64(all)}, cpu, err
		})
		if err != nil {
			return samples, err
		}
		samples[i].Value = w.Value(samples[i])
	}
	return samples, nil
}

// listBucket lists a prefix page after page without a file system.
func listBucket(ctx context.Context, place rig.Place, want int) (float64, error) {
	client, err := bare.Open(place.Server.Bucket())
	if err != nil {
		return 0, err
	}
	defer client.Close()
	began, n := time.Now(), 0
	err = client.List(ctx, place.Prefix, func(bare.Listed) error {
		n++
		return nil
	})
	if err == nil && n != want {
		err = fmt.Errorf("%d names were listed, want %d", n, want)
	}
	return time.Since(began).Seconds(), err
}
