package suite

import (
	"context"
	"fmt"

	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/rig"
)

// besides is a target that sets a client beside another at one workload.
type besides struct {
	// name is that of goal and target, work says what is measured, and with what the
	// same beyond the workload's own defaults.
	name, work, with string
	// workload is measured with readers at once (0: as many as it has) over link.
	workload string
	readers  int
	link     rig.Link
	// subject is compared with reference, which against says in words.
	subject, reference Subject
	against            string
	// want is what the ratio of both must be: at least, or at most.
	want   float64
	atMost bool
}

// theDisk is what the plain disk is called as a reference.
const theDisk = "the disk itself"

// comparisons are the targets that set one client beside another, a row each.
func comparisons() []besides {
	var (
		disk      = Subject{Driver: rig.Disk{}}
		ours      = Subject{Driver: rig.Pailfs{}}
		immutable = Subject{Driver: rig.PailfsImmutable()}
		audited   = Subject{Driver: rig.Pailfs{Variant: "audit", Audit: true}}
		seed      = rig.Link{Profile: "seed"}
	)
	return []besides{
		{name: "seq-warm", work: "whole file on SSD, page cache warm, sequential", workload: "read/seq-warm", subject: ours, reference: disk, against: theDisk, want: 0.95},
		{name: "seq-ssd", work: "whole file on SSD, page cache dropped, sequential", workload: "read/seq-ssd", subject: ours, reference: disk, against: theDisk, want: 0.95},
		{name: "rand4k-warm", work: "whole file on SSD, page cache warm, random 4 KiB", workload: "read/rand4k-warm", subject: ours, reference: disk, against: theDisk, want: 0.85},
		{name: "rand4k-ssd", work: "whole file on SSD, page cache dropped, random 4 KiB", workload: "read/rand4k-ssd", subject: ours, reference: disk, against: theDisk, want: 0.85},
		{name: "rand4k-cold", work: "cold random 4 KiB, median", with: ", profile seed", workload: "read/rand4k-cold", link: seed, subject: ours, reference: BareChecked(), against: "one bare GET", want: 1.15, atMost: true},
		{name: "small-warm-immutable-1", work: "small files warm, 1 reader, immutable", workload: "read/small-warm", subject: immutable, reference: disk, against: theDisk, want: 0.60},
		{name: "small-warm-immutable-4", work: "small files warm, 4 readers, immutable", workload: "read/small-warm", readers: 4, subject: immutable, reference: disk, against: theDisk, want: 0.60},
		{name: "small-warm-1", work: "small files warm, 1 reader, ordinary", workload: "read/small-warm", subject: ours, reference: disk, against: theDisk, want: 0.12},
		{name: "small-warm-4", work: "small files warm, 4 readers, ordinary", workload: "read/small-warm", readers: 4, subject: ours, reference: disk, against: theDisk, want: 0.18},
		{name: "audit", work: "small files warm, 1 reader, with an audit", with: " in a file", workload: "read/small-warm", subject: audited, reference: ours, against: "the same mount without one", want: 0.97},
		{name: "small-cold", work: "small files cold, 8 readers", with: ", profile seed", workload: "read/small-cold", link: seed, subject: ours, reference: BareChecked(), against: "8 bare clients", want: 0.95},
	}
}

// take measures the row.
func (c besides) take(ctx context.Context, r *Runner) (Taken, error) {
	t := result.Target{Name: c.name, Work: c.work + c.with, Against: c.against, Want: c.want, AtMost: c.atMost}
	return r.compare(ctx, c.workload, Options{Link: c.link, Readers: c.readers}, c.subject, c.reference, t)
}

// row is the goal of the comparison called name; [Goals] says in which order they are taken.
func row(name string) Goal {
	for _, c := range comparisons() {
		if c.name == name {
			return Goal{Name: c.name, Work: c.work, Take: c.take}
		}
	}
	panic(fmt.Sprintf("there is no comparison %q", name))
}
