package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/pailfs/pailfs/bench/result"
)

// compareCmd sets two reports beside each other.
type compareCmd struct {
	Old       string  `arg:"" type:"existingfile" help:"Results of before, as --json writes them."`
	New       string  `arg:"" type:"existingfile" help:"Results of now."`
	Threshold float64 `default:"5" placeholder:"PERCENT" help:"A change that is smaller is none."`
}

// Help says what the words mean.
func (compareCmd) Help() string {
	return `Series of the same workload, client and link are compared by their medians and a Mann-Whitney U test. "slower" and "faster" are changes beyond
--threshold whose chance to be noise is below 5 %; with fewer than 4 samples a side no test can say so, and "perhaps" stands before them.

Exit codes: 0 nothing is slower, 1 something is.

Example:

	bench read/seq-cold --runs 5 --json old.json; git checkout …; make build; bench read/seq-cold --runs 5 --json new.json
	bench compare old.json new.json`
}

// Run implements the command.
func (c *compareCmd) Run(p program) error {
	before, err := result.Load(c.Old)
	if err != nil {
		return err
	}
	now, err := result.Load(c.New)
	if err != nil {
		return err
	}
	changes := result.Changes(before, now, c.Threshold/100)
	if len(changes) == 0 {
		return fmt.Errorf("%s and %s have no workload and client in common", c.Old, c.New)
	}
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WORKLOAD\tCLIENT\tLINK\tBEFORE\tNOW\tCHANGE\tP\t")
	slower := 0
	for _, x := range changes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%+.1f %%\t%.3f\t%s\n", x.New.Workload, x.New.Client, x.New.Link, x.Old.Show(), x.New.Show(), 100*x.Gain, x.P, x.Verdict)
		if x.Verdict == result.Slower {
			slower++
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if before.Machine.CPU != now.Machine.CPU || before.Machine.Kernel != now.Machine.Kernel {
		p.say("the two were not taken on the same machine: %s, Linux %s, and %s, Linux %s", before.Machine.CPU, before.Machine.Kernel, now.Machine.CPU, now.Machine.Kernel)
	}
	if slower > 0 {
		return fmt.Errorf("%d of %d are slower", slower, len(changes))
	}
	return nil
}
