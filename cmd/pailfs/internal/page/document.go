package page

import (
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/overview"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/manifest"
)

// Document is page.json: what the page shows. Fields may be added.
type Document struct {
	Time    time.Time `json:"time"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Names says that names are told: of files, of tasks, of processes, and where the mount is.
	Names bool `json:"names"`
	// Mount is as `pailfs top --json` prints it. Its rates are those of the newest sample of History.
	Mount overview.Mount `json:"mount"`
	// Sessions counts those of loaders, also where they are not told.
	Sessions int      `json:"sessions"`
	Warnings []string `json:"warnings"`
	// Problems are keys that could not be shown under their own name.
	Problems manifest.Problems `json:"problem_keys"`
	// Drain is null unless the machine is about to go, and SpotNotice is as in status.
	Drain      *wire.Drain `json:"drain"`
	SpotNotice string      `json:"spot_notice"`
	History    History     `json:"history"`
}

// Answer is what a daemon says of itself.
type Answer struct {
	Status wire.Status
	// Sessions counts those of loaders, also where the status does not tell them.
	Sessions int
}

// Source is the daemon that a page is of.
type Source interface {
	// Report returns what the daemon says: with names what it says to root and its owner, else what
	// it says to a stranger in a container. It makes no request to the object store.
	Report(names bool) (Answer, error)
	// Readers returns the processes that have files of the mount open, as far as the daemon sees them.
	Readers() []mountpoint.User
}

// document asks the daemon.
func (p *Page) document(names bool) (Document, error) {
	answer, err := p.source.Report(names)
	if err != nil {
		return Document{}, err
	}
	s := &answer.Status
	now := time.Now()
	d := Document{
		Time: now.UTC(), Version: s.Version, Started: s.Started, Names: names,
		Mount: overview.New(s, now), Sessions: answer.Sessions, Warnings: s.Warnings,
		Problems: s.FileSystem.Problems, Drain: s.Drain, SpotNotice: s.SpotNotice,
	}
	if names {
		d.Mount.Readers = p.source.Readers()
	}
	d.Mount = d.Mount.Filled()
	d.History, d.Mount.Rates = p.history.report()
	return d, nil
}
