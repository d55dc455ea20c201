package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/rates"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/cmd/terminal"
)

// page collects lines.
type page []string

func (p *page) head(text string) { *p = append(*p, text) }

func (p *page) line(name, format string, args ...any) {
	*p = append(*p, terminal.Text(fmt.Sprintf("  %-12s%s", name, fmt.Sprintf(format, args...))))
}

// mostLatencies is how many operations are shown.
const mostLatencies = 5

// text returns all that is shown of a mount, for people.
func text(m Mount, now time.Time) []string {
	var p page
	p.head(fmt.Sprintf("%s at %s: %s", terminal.Name(m.Source), terminal.Name(m.MountPoint), m.Health))
	for _, reason := range m.Reasons {
		p.line("WRONG", "%s", reason)
	}
	if m.PID == 0 {
		return append(p, readers(m)...)
	}
	p.line("daemon", "pid %d, up %s, %s resident", m.PID, config.Seconds(m.Uptime), terminal.Size(m.Resident))
	p.head("reads")
	tiers(&p, m)
	p.head("object store")
	link(&p, m)
	latencies(&p, "latencies of the kernel's requests, since the start", m.Latencies, rateOf(m.Rates, func(r *rates.Rates) []rates.Operation { return r.Operations }))
	latencies(&p, "latencies of requests to the object store, since the start", m.Requests, rateOf(m.Rates, func(r *rates.Rates) []rates.Operation { return r.Requests }))
	uploads(&p, m, now)
	sessions(&p, m)
	return append(p, readers(m)...)
}

// tiers writes what reads were answered from.
func tiers(p *page, m Mount) {
	fullness := map[string]string{
		"memory": fmt.Sprintf("%s of %s used", terminal.Size(m.Cache.MemoryUsed), terminal.Size(m.Cache.MemoryLimit)),
		"ssd":    "none: no cache-dir is set",
	}
	if m.Cache.SSDState != "" {
		fullness["ssd"] = fmt.Sprintf("%s of %s used, %s", terminal.Size(m.Cache.SSDUsed), terminal.Size(m.Cache.SSDLimit), m.Cache.SSDState)
	}
	var r rates.Rates
	if m.Rates != nil {
		r = *m.Rates
	}
	for _, tier := range []struct {
		name  string
		rate  rates.Tier
		total float64
	}{{"memory", r.Memory, m.Hits.Memory}, {"ssd", r.SSD, m.Hits.SSD}, {"oss", r.OSS, m.Hits.OSS}} {
		rate := "no rate yet"
		if m.Rates != nil {
			rate = fmt.Sprintf("%10s/s %7.0f reads/s %5s of reads", size(tier.rate.Bytes), tier.rate.Reads, share(tier.rate.Share))
		}
		line := fmt.Sprintf("%s, %5s since the start", rate, share(tier.total))
		if full := fullness[tier.name]; full != "" {
			line += "; " + full
		}
		p.line(tier.name, "%s", line)
	}
	if m.Rates != nil {
		p.line("kernel", "%10s/s %7.0f READs/s; %.1f errors/s", size(r.ReadBytes), r.Reads, r.Errors)
	}
}

// link writes how the object store is reached.
func link(p *page, m Mount) {
	p.line("endpoint", "%s", m.Link.Endpoint)
	limit := "no limit of bandwidth"
	if m.Link.Bandwidth > 0 {
		limit = "at most " + terminal.Size(m.Link.Bandwidth) + "/s"
	}
	p.line("requests", "%d of %d in flight, %d waiting; told to slow down %d times; %s", m.Link.InFlight, m.Link.Limit, m.Link.Waiting, m.Link.Throttled, limit)
	if r := m.Rates; r != nil {
		p.line("down", "%s/s: %s/s on demand, %s/s ahead of readers, %s/s prefetched, %s/s around reads", size(r.Fetched.Sum()), size(r.Fetched.Demand),
			size(r.Fetched.Readahead), size(r.Fetched.Prefetch), size(r.Fetched.Around))
	}
}

// rateOf returns the rates of operations by their names.
func rateOf(r *rates.Rates, of func(*rates.Rates) []rates.Operation) map[string]rates.Operation {
	by := map[string]rates.Operation{}
	if r != nil {
		for _, o := range of(r) {
			by[o.Operation] = o
		}
	}
	return by
}

// latencies writes how long requests took.
func latencies(p *page, head string, all []wire.LatencyStats, by map[string]rates.Operation) {
	if len(all) == 0 {
		return
	}
	p.head(head)
	for _, o := range all[:min(len(all), mostLatencies)] {
		rate := ""
		if r, known := by[o.Operation]; known {
			rate = fmt.Sprintf("%8.1f/s, ", r.PerSecond)
		}
		p.line(o.Operation, "%smedian %s, p99 %s, %d in all", rate, config.Seconds(o.P50), config.Seconds(o.P99), o.Count)
	}
}

// uploads writes what is on its way, and what it waits for.
func uploads(p *page, m Mount, now time.Time) {
	u := m.Uploads
	if u == nil {
		return
	}
	p.head("uploads")
	if r := m.Rates; r != nil {
		p.line("up", "%s/s, %.1f files/s", size(r.UploadedBytes), r.UploadedFiles)
	}
	if u.PendingChanges == 0 {
		p.line("pending", "nothing: everything is in the object store")
	} else {
		p.line("pending", "%d files, %s; %d changes, the oldest since %s", u.PendingFiles, terminal.Size(u.PendingBytes), u.PendingChanges, config.Seconds(u.OldestSeconds))
	}
	p.line("staged", "%s; %d fail, %d are tried again", terminal.Size(u.StagedBytes), u.Failing, u.Retrying)
	for _, e := range u.WaitFor {
		why := e.Error
		if why == "" {
			why = "it changed before all of it was sent"
		}
		p.line(e.State, "%s, %s, since %s: %s", terminal.Name(e.Path), terminal.Size(e.Bytes), config.Seconds(now.Sub(e.Since).Seconds()), why)
	}
}

// sessions writes what loaders do.
func sessions(p *page, m Mount) {
	if len(m.Sessions) == 0 {
		return
	}
	p.head("sessions")
	for _, s := range m.Sessions {
		p.line(fmt.Sprintf("worker %d", s.Worker), "%s, user %d: %d requested, %d fetching, %d ready, %d in use, %d failed; holds %s, heard of %s ago",
			terminal.Name(s.Task), s.UID, s.Requested.Files, s.Fetching.Files, s.Ready.Files, s.Active.Files, s.Failed.Files, terminal.Size(s.Charged), config.Seconds(s.Idle))
	}
}

// readers returns the processes that have files open.
func readers(m Mount) page {
	var p page
	if len(m.Readers) == 0 {
		return p
	}
	p.head("processes with open files")
	for _, u := range m.Readers {
		p.line(fmt.Sprintf("pid %d", u.PID), "%s, %d open", terminal.Name(strings.TrimSpace(u.Name)), u.Files)
	}
	return p
}
