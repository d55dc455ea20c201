package shape

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Latency is a distribution of waiting times: lognormal, given by its median and
// the standard deviation of its logarithm.
type Latency struct {
	// Median is the 50th percentile; 0 means no wait at all.
	Median time.Duration
	// Sigma is the spread: p95 is Median*exp(1.645*Sigma). 0 means always Median.
	Sigma float64
	// Floor is the least that is ever drawn.
	Floor time.Duration
}

// Shape is how slow a server is. Zero fields do not slow it.
type Shape struct {
	// Get is the time to the first byte of a GET of an object.
	Get Latency
	// Head is the time of a HEAD, of ?objectMeta and of the other small questions
	// about one object or bucket.
	Head Latency
	// Put is the time from the last byte of an upload (object, part, append) to
	// its answer, and the time of other small changes.
	Put Latency
	// List is the time of a listing page, to which ListPerEntry is added for every
	// entry that the page returns.
	List         Latency
	ListPerEntry time.Duration
	// Copy is the time of a copy inside the server, to which the size over CopyRate
	// is added.
	Copy     Latency
	CopyRate Rate
	// Complete is the time of completing a multipart upload, to which
	// CompletePerPart is added for every part.
	Complete        Latency
	CompletePerPart time.Duration
	// TailProbability is the share of requests whose latency is multiplied by 10 to
	// 30.
	TailProbability float64
	// DownloadPerConnection and UploadPerConnection bound a single request.
	DownloadPerConnection Rate
	UploadPerConnection   Rate
	// Spread makes the rate of single requests differ: each draws its own,
	// uniform between 1-Spread and 1+Spread times the above.
	Spread float64
	// Download and Upload bound all requests together.
	Download Rate
	Upload   Rate
	// QPS is how many requests a second are served; more are refused. 0 means no
	// bound.
	QPS float64
	// RoundTrip is added to the first request of every connection, as connecting
	// over a distance would.
	RoundTrip time.Duration
	// Seed begins the random generator.
	Seed uint64
}

// None is the shape of a server that is as fast as it can be.
const None = "none"

// Profile returns the shape of that name: none, seed, accelerator or cold-slow.
// The numbers and where they come from are in oss/ossemu/DESIGN.md.
func Profile(name string) (Shape, error) {
	switch name {
	case None, "":
		return Shape{}, nil
	case "seed":
		return Shape{
			Get:                   Latency{Median: 30 * time.Millisecond, Sigma: 0.45, Floor: 8 * time.Millisecond},
			Head:                  Latency{Median: 12 * time.Millisecond, Sigma: 0.4},
			Put:                   Latency{Median: 35 * time.Millisecond, Sigma: 0.4},
			List:                  Latency{Median: 20 * time.Millisecond, Sigma: 0.3},
			ListPerEntry:          100 * time.Microsecond,
			Copy:                  Latency{Median: 30 * time.Millisecond, Sigma: 0.4},
			CopyRate:              500e6,
			Complete:              Latency{Median: 50 * time.Millisecond, Sigma: 0.4},
			CompletePerPart:       time.Millisecond,
			TailProbability:       0.001,
			DownloadPerConnection: 100e6,
			UploadPerConnection:   60e6,
			Spread:                0.4,
			Download:              1500e6,
			Upload:                1000e6,
			QPS:                   10000,
		}, nil
	case "accelerator":
		return Shape{
			Get:                   Latency{Median: 5 * time.Millisecond, Sigma: 0.4},
			Head:                  Latency{Median: 3 * time.Millisecond, Sigma: 0.4},
			Put:                   Latency{Median: 15 * time.Millisecond, Sigma: 0.4},
			List:                  Latency{Median: 10 * time.Millisecond, Sigma: 0.3},
			ListPerEntry:          50 * time.Microsecond,
			Copy:                  Latency{Median: 30 * time.Millisecond, Sigma: 0.4},
			CopyRate:              500e6,
			Complete:              Latency{Median: 50 * time.Millisecond, Sigma: 0.4},
			CompletePerPart:       time.Millisecond,
			TailProbability:       0.001,
			DownloadPerConnection: 300e6,
			UploadPerConnection:   120e6,
			Spread:                0.4,
			Download:              3000e6,
			Upload:                2500e6,
			QPS:                   10000,
		}, nil
	case "cold-slow":
		return Shape{
			Get:                   Latency{Median: 110 * time.Millisecond, Sigma: 0.35},
			Head:                  Latency{Median: 40 * time.Millisecond, Sigma: 0.4},
			Put:                   Latency{Median: 120 * time.Millisecond, Sigma: 0.4},
			List:                  Latency{Median: 60 * time.Millisecond, Sigma: 0.3},
			ListPerEntry:          200 * time.Microsecond,
			Copy:                  Latency{Median: 30 * time.Millisecond, Sigma: 0.4},
			CopyRate:              500e6,
			Complete:              Latency{Median: 50 * time.Millisecond, Sigma: 0.4},
			CompletePerPart:       time.Millisecond,
			TailProbability:       0.001,
			DownloadPerConnection: 60e6,
			UploadPerConnection:   40e6,
			Spread:                0.4,
			Download:              400e6,
			Upload:                400e6,
			QPS:                   10000,
		}, nil
	}
	return Shape{}, fmt.Errorf("profile %q: want none, seed, accelerator or cold-slow", name)
}

// Validate says what makes no sense in s.
func (s Shape) Validate() error {
	for _, l := range []struct {
		name string
		Latency
	}{{"get", s.Get}, {"head", s.Head}, {"put", s.Put}, {"list", s.List}, {"copy", s.Copy}, {"complete", s.Complete}} {
		if l.Median < 0 || l.Floor < 0 || l.Median > time.Hour || l.Floor > time.Hour {
			return fmt.Errorf("%s latency: want 0 to 1h", l.name)
		}
		if l.Sigma < 0 || l.Sigma > 3 || math.IsNaN(l.Sigma) {
			return fmt.Errorf("%s latency: want a sigma of 0 to 3, have %v", l.name, l.Sigma)
		}
	}
	for _, d := range []time.Duration{s.ListPerEntry, s.CompletePerPart, s.RoundTrip} {
		if d < 0 || d > time.Minute {
			return fmt.Errorf("duration %v: want 0 to 1m", d)
		}
	}
	for _, r := range []Rate{s.CopyRate, s.DownloadPerConnection, s.UploadPerConnection, s.Download, s.Upload} {
		if r < 0 || (r > 0 && r < 1024) {
			return fmt.Errorf("rate %v: want 0 or at least 1KiB a second", r)
		}
	}
	if !(s.TailProbability >= 0 && s.TailProbability <= 1) {
		return fmt.Errorf("tail probability %v: want 0 to 1", s.TailProbability)
	}
	if !(s.Spread >= 0 && s.Spread <= 0.9) {
		return fmt.Errorf("spread %v: want 0 to 0.9", s.Spread)
	}
	if !(s.QPS >= 0) || math.IsInf(s.QPS, 0) {
		return errors.New("qps: want 0 or more")
	}
	return nil
}
