package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pailfs/pailfs/bench/machine"
	"github.com/pailfs/pailfs/bench/result"
	"github.com/pailfs/pailfs/bench/suite"
	"github.com/pailfs/pailfs/bench/workload"
)

// commonFlags are the flags of every command that measures.
type commonFlags struct {
	Bin   string `placeholder:"DIR" help:"Directory of pailfs and ossemu (default: that of this program, else bin)."`
	Work  string `default:"/var/tmp" placeholder:"DIR" help:"Where to put data and caches, on a local disk. A directory is made there and removed at the end."`
	Runs  int    `default:"0" placeholder:"N" help:"Samples of every client (default 5, with --short 1)."`
	Short bool   `help:"Reduce every size: shows that everything works, not how fast."`
	Size  string `default:"" placeholder:"BYTES" help:"Size of the object that is read for the memory target, such as 20GiB."`
	JSON  string `name:"json" default:"" placeholder:"FILE" help:"Write the results as JSON."`
	Keep  bool   `help:"Leave data, caches and logs in the work directory."`

	// sizes replace the full ones, if set by the command.
	sizes workload.Sizes
}

// programs is the directory of the programs that are measured.
func (f commonFlags) programs() (string, error) { return findPrograms(f.Bin) }

func findPrograms(given string) (string, error) {
	candidates := []string{given}
	if given == "" {
		candidates = []string{"bin"}
		if self, err := os.Executable(); err == nil {
			candidates = []string{filepath.Dir(self), "bin"}
		}
	}
	for _, dir := range candidates {
		if isProgram(filepath.Join(dir, "pailfs")) && isProgram(filepath.Join(dir, "ossemu")) {
			return filepath.Abs(dir)
		}
	}
	return "", fmt.Errorf("no pailfs and ossemu in %s: run make build, or say --bin", strings.Join(candidates, " or "))
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// session is a runner with its working directory.
type session struct {
	runner *suite.Runner
	report *result.Report
	sizes  workload.Sizes
	work   string
	keep   bool
}

// open prepares a measurement: it must be able to mount and to drop caches.
func (f commonFlags) open(p program) (*session, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("only root may drop the kernel's caches and mount without fusermount: run as root")
	}
	programs, err := f.programs()
	if err != nil {
		return nil, err
	}
	sizes, runs, prepare := workload.Full(), 5, int64(4<<30)
	if f.sizes != (workload.Sizes{}) {
		sizes = f.sizes
	}
	if f.Short {
		sizes, runs, prepare = workload.Short(), 1, 0
	}
	if f.Runs > 0 {
		runs = f.Runs
	}
	if f.Size != "" {
		if sizes.StreamBytes, err = parseSize(f.Size); err != nil {
			return nil, err
		}
	}
	process, err := readerProcess()
	if err != nil {
		return nil, err
	}
	writers, err := writerProcess()
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(f.Work, "pailfs-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a working directory: %w", err)
	}
	s := &session{work: work, keep: f.Keep, sizes: sizes}
	facts, err := machine.Look(work)
	if err != nil {
		return nil, errors.Join(err, s.close(p))
	}
	s.report = &result.Report{
		Format: result.Format, Taken: time.Now().UTC().Truncate(time.Second),
		Command: strings.Join(append([]string{"bench"}, whatIsMeasured(p.args[1:])...), " "), Machine: facts, Short: f.Short,
	}
	s.runner, err = suite.Open(suite.Config{
		Programs: programs, Work: work, Sizes: sizes, Runs: runs, Reader: process, Writer: writers, Self: process.Command[0], PrepareBytes: prepare,
		Keep: f.Keep, Say: p.say,
	})
	if err != nil {
		return nil, errors.Join(err, s.close(p))
	}
	return s, nil
}

// whatIsMeasured is a command line without the places of its files, which say
// nothing of the figures.
func whatIsMeasured(args []string) (kept []string) {
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(args[i], "=")
		if !slices.Contains([]string{"--json", "--work", "--bin", "--page", "--out"}, name) {
			kept = append(kept, args[i])
		} else if !joined {
			i++ // its value
		}
	}
	return kept
}

// writeTable shows a table, saves the results where that was asked for, and puts the
// table into a section of a page, unless that is "".
func (f commonFlags) writeTable(p program, r *result.Report, table result.Table, page, section string) error {
	write := func(w io.Writer) error { return table.WriteMarkdown(w, r) }
	if err := write(p.stdout); err != nil {
		return err
	}
	if f.JSON != "" {
		if err := r.Save(f.JSON); err != nil {
			return err
		}
	}
	if page == "" {
		return nil
	}
	return result.UpdatePage(page, section, write)
}

// close ends everything and removes the working directory, unless it is to be
// kept.
func (s *session) close(p program) error {
	var err error
	if s.runner != nil {
		err = s.runner.Close()
	}
	if s.keep {
		p.say("kept %s", s.work)
		return err
	}
	return errors.Join(err, os.RemoveAll(s.work))
}
