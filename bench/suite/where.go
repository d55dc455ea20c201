package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/bench/workload"
)

// mostProfile is for how many seconds a daemon can be profiled at most.
const mostProfile = 60

// Where measures w with pailfs, told what comes where it trains, and says where the time went: the series carry it. The
// second of two samples is profiled; profile is what go tool pprof says of the daemon.
func (r *Runner) Where(ctx context.Context, w workload.Workload, o Options, flags ...string) (series []result.Series, profile string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", fmt.Errorf("find a free port: %w", err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return nil, "", err
	}
	r.watched = &watched{web: "http://" + address}
	defer func() { r.watched = nil }()
	o.Runs = 1
	subject := SubjectOf((rig.Pailfs{}).With(append([]string{"--http", address, "--http-debug"}, flags...)...), w)
	first, err := r.Measure(ctx, w, o, subject)
	if err != nil {
		return nil, "", err
	}
	file, err := os.CreateTemp(r.cfg.Work, "profile-")
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, os.Remove(file.Name())) }()
	if err := file.Close(); err != nil {
		return nil, "", err
	}
	r.watched.file, r.watched.seconds = file.Name(), int(min(max(1, math.Round(first[0].Samples[0].Spent.Seconds)), mostProfile))
	if series, err = r.Measure(ctx, w, o, subject); err != nil {
		return nil, "", err
	}
	text, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-nodecount=25", file.Name()).CombinedOutput()
	if err != nil {
		// The shares are there without it.
		return series, fmt.Sprintf("no profile: %v: %s", err, text), nil
	}
	return series, string(text), nil
}

// watched is a daemon that tells what it does.
type watched struct {
	web string
	// file takes a profile of seconds, once, if set.
	file    string
	seconds int
	taken   chan error
}

// profile begins to take the profile, if one is wanted.
func (d *watched) profile(ctx context.Context) {
	if d == nil || d.file == "" || d.taken != nil {
		return
	}
	d.taken = make(chan error, 1)
	name := d.file
	go func() {
		d.taken <- d.fetch(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", d.seconds), func(body io.Reader) error {
			file, err := os.Create(name)
			if err != nil {
				return err
			}
			_, err = io.Copy(file, body)
			return errors.Join(err, file.Close())
		})
	}()
}

// profiled waits until the profile is there.
func (d *watched) profiled() error {
	if d == nil || d.taken == nil || d.file == "" {
		return nil
	}
	d.file = ""
	return <-d.taken
}

func (d *watched) fetch(ctx context.Context, path string, do func(body io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.web+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask the daemon for %s: %w", path, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask the daemon for %s: %s", path, response.Status)
	}
	return do(response.Body)
}

// The histograms of what the kernel asks, and of what is asked of the store.
const (
	kernelCalls = "pailfs_fs_request_duration_seconds"
	storeCalls  = "pailfs_oss_request_seconds"
)

// calls asks for both, by their names and the operation.
func (d *watched) calls(ctx context.Context) (map[string]map[string]result.Calls, error) {
	if d == nil {
		return nil, nil
	}
	all := map[string]map[string]result.Calls{kernelCalls: {}, storeCalls: {}}
	err := d.fetch(ctx, "/metrics", func(body io.Reader) error {
		text, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			addCalls(all, line)
		}
		return nil
	})
	return all, err
}

// addCalls takes a line of the text format, such as NAME_sum{op="read"} 0.5.
func addCalls(all map[string]map[string]result.Calls, line string) {
	for name, into := range all {
		rest, ok := strings.CutPrefix(line, name+"_")
		if !ok {
			continue
		}
		kind, rest, ok := strings.Cut(rest, `{`)
		labels, number, okNumber := strings.Cut(rest, `} `)
		_, label, okLabel := strings.Cut(labels, `="`)
		value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if !ok || !okNumber || !okLabel || err != nil {
			continue
		}
		operation := strings.TrimSuffix(label, `"`)
		c := into[operation]
		switch kind {
		case "sum":
			c.Seconds = value
		case "count":
			c.Count = value
		default:
			continue
		}
		into[operation] = c
	}
}

// callsSince is what was added to before.
func callsSince(before, after map[string]result.Calls) map[string]result.Calls {
	if len(after) == 0 {
		return nil
	}
	since := map[string]result.Calls{}
	for name, c := range after {
		if more := c.Count - before[name].Count; more > 0 {
			since[name] = result.Calls{Count: more, Seconds: c.Seconds - before[name].Seconds}
		}
	}
	return since
}
