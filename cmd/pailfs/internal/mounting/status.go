package mounting

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/control"
)

// answerStatus is the control method status. It makes no request to the store. Whom
// the mount does not belong to is told no names.
func (d *Daemon) answerStatus(ctx context.Context, caller control.Caller, _ struct{}) (wire.Status, error) {
	select {
	case <-d.opened:
	case <-ctx.Done():
		return wire.Status{}, ctx.Err()
	}
	report, err := d.report()
	if err == nil && !d.mux.MayOwn(caller) {
		report.Loader = d.loader.prefetch.OverviewOf(caller.User(), caller.Who())
		statusForStranger(&report, caller)
		if caller.Dir != "" || !callerNamespace(caller) {
			statusForContainer(&report)
		}
	}
	return report, err
}

// report is all that the daemon says of itself.
func (d *Daemon) report() (wire.Status, error) {
	stats, err := gatherLatencyStats(d.registry)
	if err != nil {
		return wire.Status{}, err
	}
	var changes *writeback.Status
	if d.writing != nil {
		st := d.writing.space.Status()
		changes = &st
	}
	report := wire.Status{
		Writing:     changes,
		Drain:       d.draining.report(),
		SpotNotice:  d.spot.notice(),
		Version:     d.Version,
		PID:         os.Getpid(),
		Started:     d.started.UTC().Truncate(time.Second),
		Uptime:      time.Since(d.started).Seconds(),
		Source:      d.Source.String(),
		MountPoint:  d.At,
		Log:         d.Log.To,
		HTTP:        d.web.Address(),
		Warnings:    d.warningTexts(),
		Resident:    stats.resident,
		FileSystem:  d.mount.Status(),
		Latencies:   stats.fileSystem,
		Cache:       d.cache.Stats(),
		Store:       d.storeReport(stats),
		Loader:      d.loader.prefetch.Overview(),
		Manifest:    d.names.report(d.Settings.Manifest, time.Now()),
		MetadataTTL: time.Duration(d.Settings.MetadataTTL).Seconds(),
	}
	if d.audit != nil {
		audited := d.audit.Status()
		report.Audit = &audited
	}
	return report, nil
}

func (d *Daemon) storeReport(stats latencyStats) wire.Store {
	status := d.store.credentials.Status()
	c := wire.Credentials{Kind: string(status.Kind), AccessKeyID: status.AccessKeyID}
	if !status.Expires.IsZero() {
		expires := status.Expires.UTC()
		c.Expires = &expires
	}
	if status.Err != nil {
		c.Error = command.OneLine(status.Err)
	}
	requests := d.store.limiter.Stats()
	l := wire.Limiter{
		Limit:     requests.Limit,
		InFlight:  map[string]int{},
		Waiting:   map[string]int{},
		Rate:      requests.Rate,
		Throttled: requests.Throttled,
	}
	for _, class := range []oss.Class{oss.Demand, oss.Prefetch, oss.Upload} {
		l.InFlight[class.String()] = requests.InFlight[class]
		l.Waiting[class.String()] = requests.Waiting[class]
	}
	var refused *wire.Refused
	if access := d.store.client.Access(); access.Refused {
		refused = &wire.Refused{Since: access.Since.UTC().Truncate(time.Second), Reason: access.Reason}
	}
	return wire.Store{
		Refused:     refused,
		Endpoint:    strings.TrimSuffix(d.Settings.Endpoint, "/"),
		Region:      d.Settings.Region,
		Credentials: c,
		Limiter:     l,
		Requests:    stats.store,

		DownloadLimit: int64(d.Settings.DownloadBandwidth),
	}
}
