package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/cmd/internal/command"
	pailfs "github.com/pailfs/pailfs/fs"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch"
	"github.com/pailfs/pailfs/prefetch/control"
)

// statusReport is what `pailfs status --json` prints and the control method
// status answers. It holds no secret. Fields may be added; what is here keeps its
// name and meaning.
type statusReport struct {
	Version    string    `json:"version"`
	PID        int       `json:"pid"`
	Started    time.Time `json:"started"`
	Uptime     float64   `json:"uptime_seconds"`
	Source     string    `json:"source"`
	MountPoint string    `json:"mountpoint"`
	// Log says where the log goes, HTTP where metrics are served ("" for nowhere).
	Log  string `json:"log"`
	HTTP string `json:"http,omitempty"`
	// Warnings say what is wrong and does not end the mount.
	Warnings []string `json:"warnings,omitempty"`
	// Resident is the daemon's memory in bytes, its memory tier included.
	Resident   int64         `json:"resident_bytes"`
	FileSystem pailfs.Status `json:"file_system"`
	// Latencies are the kernel's requests as the daemon answered them.
	Latencies []operationFigures `json:"latencies"`
	Cache     cache.Stats        `json:"cache"`
	Store     storeReport        `json:"store"`
	// Loader is what is brought in before it is read.
	Loader prefetch.Status `json:"loader"`
	// Manifest says where names come from.
	Manifest manifestReport `json:"manifest"`
	// Writing is absent where the mount cannot be written.
	Writing *writeback.Status `json:"writing,omitempty"`
	// Drain is absent unless the machine is about to go.
	Drain *drainReport `json:"drain,omitempty"`
	// MetadataTTL is for how many seconds a name is believed.
	MetadataTTL float64 `json:"metadata_ttl_seconds"`
}

// storeReport is what is known of the object store.
type storeReport struct {
	Endpoint    string            `json:"endpoint"`
	Region      string            `json:"region,omitempty"`
	Credentials credentialsReport `json:"credentials"`
	Limiter     limiterReport     `json:"limiter"`
	// DownloadLimit is download-bandwidth, absent without a limit.
	DownloadLimit int64              `json:"download_limit_bytes_per_second,omitempty"`
	Requests      []operationFigures `json:"requests"`
	// Refused is absent unless the store refuses our keys or rights.
	Refused *refusedReport `json:"refused,omitempty"`
}

// refusedReport says since when the store refuses access, and why.
type refusedReport struct {
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
}

// credentialsReport says whose keys are used, and never the keys.
type credentialsReport struct {
	Kind string `json:"kind"`
	// AccessKeyID is shortened.
	AccessKeyID string `json:"access_key_id,omitempty"`
	// Expires is absent if they do not, or if it is not known.
	Expires *time.Time `json:"expires,omitempty"`
	// Error is why they could not be renewed.
	Error string `json:"error,omitempty"`
}

// limiterReport is the state of the request limiter.
type limiterReport struct {
	Limit     int            `json:"limit"`
	InFlight  map[string]int `json:"in_flight"`
	Waiting   map[string]int `json:"waiting"`
	Rate      float64        `json:"rate_limit_per_second"`
	Throttled uint64         `json:"throttled"`
}

// answerStatus is the control method status. It makes no request to the store. Whom
// the mount does not belong to is told no names.
func (d *daemon) answerStatus(ctx context.Context, caller control.Caller, _ struct{}) (statusReport, error) {
	select {
	case <-d.opened:
	case <-ctx.Done():
		return statusReport{}, ctx.Err()
	}
	figures, err := gatherFigures(d.registry)
	if err != nil {
		return statusReport{}, err
	}
	var changes *writeback.Status
	if d.writing != nil {
		st := d.writing.space.Status()
		changes = &st
	}
	report := statusReport{
		Writing:     changes,
		Drain:       d.drainReport(),
		Version:     versionText(),
		PID:         os.Getpid(),
		Started:     d.started.UTC().Truncate(time.Second),
		Uptime:      time.Since(d.started).Seconds(),
		Source:      d.source.String(),
		MountPoint:  d.at,
		Log:         d.log.to,
		HTTP:        d.web.address(),
		Warnings:    d.warningTexts(),
		Resident:    figures.resident,
		FileSystem:  d.mount.Status(),
		Latencies:   figures.fileSystem,
		Cache:       d.cache.Stats(),
		Store:       d.storeReport(figures),
		Loader:      d.prefetch.Overview(),
		Manifest:    d.names.report(d.settings.Manifest, time.Now()),
		MetadataTTL: time.Duration(d.settings.MetadataTTL).Seconds(),
	}
	if !d.mux.MayOwn(caller) {
		report.forStranger(caller)
	}
	return report, nil
}

func (d *daemon) storeReport(figures figures) storeReport {
	status := d.credentials.Status()
	c := credentialsReport{Kind: string(status.Kind), AccessKeyID: status.AccessKeyID}
	if !status.Expires.IsZero() {
		expires := status.Expires.UTC()
		c.Expires = &expires
	}
	if status.Err != nil {
		c.Error = command.OneLine(status.Err)
	}
	stats := d.limiter.Stats()
	l := limiterReport{
		Limit:     stats.Limit,
		InFlight:  map[string]int{},
		Waiting:   map[string]int{},
		Rate:      stats.Rate,
		Throttled: stats.Throttled,
	}
	for _, class := range []oss.Class{oss.Demand, oss.Prefetch, oss.Upload} {
		l.InFlight[class.String()] = stats.InFlight[class]
		l.Waiting[class.String()] = stats.Waiting[class]
	}
	var refused *refusedReport
	if access := d.client.Access(); access.Refused {
		refused = &refusedReport{Since: access.Since.UTC().Truncate(time.Second), Reason: access.Reason}
	}
	return storeReport{
		Refused:     refused,
		Endpoint:    strings.TrimSuffix(d.settings.Endpoint, "/"),
		Region:      d.settings.Region,
		Credentials: c,
		Limiter:     l,
		Requests:    figures.store,

		DownloadLimit: int64(d.settings.DownloadBandwidth),
	}
}
