package mounting

import (
	"context"
	"errors"
	"fmt"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/page"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/prefetch/control"
)

// pageSource is what the status page asks.
type pageSource struct{ d *Daemon }

var _ page.Source = pageSource{}

// Report implements [page.Source].
func (s pageSource) Report(names bool) (page.Answer, error) {
	report, err := s.d.report()
	if err != nil {
		return page.Answer{}, err
	}
	sessions := len(report.Loader.Sessions)
	if !names {
		report.Loader.Sessions = nil
		statusForStranger(&report, control.Caller{})
		statusForContainer(&report)
	}
	return page.Answer{Status: report, Sessions: sessions}, nil
}

// Readers implements [page.Source].
func (s pageSource) Readers() []mountpoint.User {
	m, mounted, err := mountpoint.At(s.d.At)
	if err != nil || !mounted {
		return nil // it is gone here, and so are they
	}
	return mountpoint.Users(m)
}

// servePage begins to serve metrics, health and the status page, where an address is set. The page
// ends before the parts of which it tells.
func (d *Daemon) servePage() error {
	if d.Settings.HTTP == "" {
		return nil
	}
	p, err := page.New(pageSource{d}, d.Log.Logger)
	if err != nil {
		return fmt.Errorf("make the status page: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Run(ctx)
	}()
	d.page = p
	d.opens("status page", func() error {
		stop()
		<-ended
		return p.Close()
	})
	d.web.Serve(d.registry, d.health, p)
	return nil
}

// answerPage is the control method page.
func (d *Daemon) answerPage(ctx context.Context, _ control.Caller, _ struct{}) (wire.PageAnswer, error) {
	select {
	case <-d.opened:
	case <-ctx.Done():
		return wire.PageAnswer{}, ctx.Err()
	}
	if d.page == nil {
		return wire.PageAnswer{}, errors.New("this mount serves no page: mount it with --http 9321, or another port")
	}
	address := d.web.Address()
	if address == "" {
		return wire.PageAnswer{}, errors.New(d.web.Warning())
	}
	url, names := d.page.URL(address)
	return wire.PageAnswer{URL: url, Names: names}, nil
}
