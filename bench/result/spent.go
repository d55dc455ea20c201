package result

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Spent says where the time of one sample went. The shares are parts of all
// processors over the sample, from the start of the program that measures to its end;
// what is left of 1 was spent waiting.
type Spent struct {
	// Program is the program that reads or writes, ProgramKernel what the kernel did in
	// its system calls, Daemon and DaemonKernel the same of the client's daemon.
	Program       float64 `json:"program"`
	ProgramKernel float64 `json:"program_kernel"`
	Daemon        float64 `json:"daemon"`
	DaemonKernel  float64 `json:"daemon_kernel"`
	// Server stands for network and object store, Other is everything else.
	Server float64 `json:"server"`
	Other  float64 `json:"other"`
	// Disk is the part of the time in which the disk had something to do.
	Disk float64 `json:"disk"`
	// Seconds is how long the sample took with the start of its program.
	Seconds float64 `json:"seconds"`
	// Kernel and Store are what the daemon was asked by the kernel, and what it asked of
	// the object store, by operation; only where the daemon tells.
	Kernel map[string]Calls `json:"kernel,omitempty"`
	Store  map[string]Calls `json:"store,omitempty"`
}

// Calls are operations of one kind, and the seconds that they took together.
type Calls struct {
	Count   float64 `json:"count"`
	Seconds float64 `json:"seconds"`
}

// Waiting is the share in which no processor had anything to do.
func (s *Spent) Waiting() float64 {
	return max(0, 1-s.Program-s.ProgramKernel-s.Daemon-s.DaemonKernel-s.Server-s.Other)
}

// WriteSpent writes where the time of the last sample of every series went.
func WriteSpent(w io.Writer, r *Report) error {
	var b strings.Builder
	r.writeMachine(&b)
	b.WriteString("| workload | client | program | kernel for it | daemon | kernel for it | server | other | waiting | disk busy | asked by the kernel | asked of the store |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for i := range r.Series {
		s := &r.Series[i]
		if len(s.Samples) == 0 || s.Samples[len(s.Samples)-1].Spent == nil {
			continue
		}
		x := s.Samples[len(s.Samples)-1].Spent
		fmt.Fprintf(&b, "| %s | %s |", s.Workload, s.Client)
		for _, share := range []float64{x.Program, x.ProgramKernel, x.Daemon, x.DaemonKernel, x.Server, x.Other, x.Waiting(), x.Disk} {
			fmt.Fprintf(&b, " %.0f %% |", 100*share)
		}
		fmt.Fprintf(&b, " %s | %s |\n", showCalls(x.Kernel, x.Seconds), showCalls(x.Store, x.Seconds))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// showCalls names the operations that took most, with how many were under way at a
// time.
func showCalls(calls map[string]Calls, seconds float64) string {
	names := slices.SortedFunc(maps.Keys(calls), func(a, b string) int {
		return cmp.Compare(calls[b].Seconds, calls[a].Seconds)
	})
	var said []string
	for _, name := range names[:min(4, len(names))] {
		if c := calls[name]; c.Count > 0 {
			said = append(said, fmt.Sprintf("%s × %s (%s each, %.2f at a time)", grouped(c.Count), name, ShowValue(c.Seconds/c.Count, Seconds), c.Seconds/seconds))
		}
	}
	if len(said) == 0 {
		return "–"
	}
	return strings.Join(said, ", ")
}
