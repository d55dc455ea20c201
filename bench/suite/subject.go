package suite

import (
	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/rig"
	"github.com/pailfs/pailfs/bench/workload"
)

// bareGets is how many requests a bare client that knows the order has under way.
const bareGets = 64

// withHints lets the client be told what comes, if it is pailfs.
func withHints(d rig.Driver, label string) Subject {
	s := Subject{Driver: d, Label: label}
	if _, ours := d.(rig.Pailfs); ours {
		s.Adjust = training(func(t *reader.Training) { t.Hints = true })
	}
	return s
}

// bareAhead is the bare client that knows what comes: what the link allows.
func bareAhead() Subject {
	return Subject{
		Driver: rig.Bare{}, Label: "bare, 64 ahead",
		Adjust: training(func(t *reader.Training) { t.Gets = bareGets }),
	}
}

// training changes how a job trains, without touching what other clients share.
func training(change func(t *reader.Training)) func(*reader.Job) {
	return func(job *reader.Job) {
		if job.Training != nil {
			t := *job.Training
			change(&t)
			job.Training = &t
		}
	}
}

// SubjectOf is a client as it takes part in a comparison at w: pailfs is told what
// comes, others cannot be.
func SubjectOf(d rig.Driver, w workload.Workload) Subject {
	switch {
	case w.Job.Pattern != reader.Train:
		return Subject{Driver: d}
	case d.Name() == (rig.Bare{}).Name():
		return bareAhead()
	default:
		return withHints(d, "")
	}
}
