// Command run runs rounds of torture, each in a process of its own, tells of each in a line and
// in a line of JSON; or it makes the summary of such lines. `make torture` and `make torture-sum`
// start it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/systemtest/torture"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("torture", flag.ContinueOnError)
	flags.SetOutput(stderr)
	r := runner{out: stdout}
	flags.StringVar(&r.tests, "tests", "", "folder with the test programs, as go test -c names them")
	flags.BoolVar(&r.short, "short", false, "rounds of seconds, of kinds that are tests of other packages (default only those)")
	flags.StringVar(&r.program, "program", "", "pailfs to test")
	flags.StringVar(&r.commit, "commit", "", "what it was built from")
	flags.StringVar(&r.results, "results", "torture.jsonl", "file to which results are appended; logs of what failed lie beside it")
	flags.DurationVar(&r.soak, "soak", 2*time.Hour, "how long a soak lasts")
	rounds := flags.Int("rounds", 1000, "rounds of kills; the other kinds have their share")
	kinds := flags.String("kinds", "", "kinds of rounds, separated by commas or spaces (default all)")
	seeds := flags.String("seeds", "", "seeds FROM-TO, in place of rounds")
	summary := flags.String("summary", "", "make this page of the results in the files that are arguments")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *summary != "" {
		return summarize(*summary, flags.Args())
	}
	if r.tests == "" || r.program == "" || flags.NArg() > 0 {
		return errors.New("-tests and -program are needed, and no arguments")
	}
	parts, err := plan(*kinds, *seeds, *rounds)
	if err != nil {
		return err
	}
	if r.short {
		parts = slices.DeleteFunc(parts, func(p part) bool { return p.kind.Of == nil })
	}
	return r.all(ctx, parts)
}

// summarize writes the page.
func summarize(page string, files []string) error {
	var all []torture.Result
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("open results: %w", err)
		}
		part, err := torture.Read(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("read results %q: %w", name, err)
		}
		all = append(all, part...)
	}
	before, err := os.ReadFile(page)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("read summary: %w", err)
	}
	text, err := torture.Summary(all, string(before))
	if err != nil {
		return fmt.Errorf("page %q: %w", page, err)
	}
	return os.WriteFile(page, []byte(text), 0o644)
}

// part is some rounds of one kind.
type part struct {
	kind     torture.Kind
	from, to uint64
}

// plan says which rounds there are.
func plan(kinds, seeds string, rounds int) ([]part, error) {
	asked := strings.FieldsFunc(kinds, func(c rune) bool { return c == ',' || c == ' ' })
	known := map[string]bool{}
	var parts []part
	for _, kind := range torture.Kinds() {
		known[kind.Name] = true
		if len(asked) > 0 && !strings.Contains(" "+strings.Join(asked, " ")+" ", " "+kind.Name+" ") {
			continue
		}
		p := part{kind, 1, uint64(max(rounds, 1)+kind.Share-1) / uint64(kind.Share)}
		if seeds != "" {
			if n, err := fmt.Sscanf(seeds+"\n", "%d-%d\n", &p.from, &p.to); n != 2 || err != nil || p.to < p.from {
				return nil, fmt.Errorf("seeds %q: want FROM-TO, for example 101-200", seeds)
			}
		}
		parts = append(parts, p)
	}
	for _, name := range asked {
		if !known[name] {
			return nil, fmt.Errorf("kind %q: want some of %s", name, names())
		}
	}
	return parts, nil
}

func names() string {
	var all []string
	for _, kind := range torture.Kinds() {
		all = append(all, kind.Name)
	}
	return strings.Join(all, ", ")
}

// runner runs rounds.
type runner struct {
	tests, program, commit, results string
	soak                            time.Duration
	short                           bool
	out                             io.Writer
}

// all runs them, and returns an error if some failed.
func (r runner) all(ctx context.Context, parts []part) error {
	ran, failed := 0, 0
	for _, p := range parts {
		for seed := p.from; seed <= p.to; seed++ {
			result, err := r.round(ctx, p.kind, seed)
			if ctx.Err() != nil {
				return fmt.Errorf("stopped after %d rounds, of which %d failed", ran, failed)
			}
			if err == nil {
				err = torture.Append(r.results, result)
			}
			if err != nil {
				return err
			}
			fmt.Fprintln(r.out, result)
			ran++
			if !result.OK {
				failed++
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d rounds failed; their logs are in %s", failed, ran, r.logs())
	}
	fmt.Fprintf(r.out, "all of %d rounds passed\n", ran)
	return nil
}

// logs is where the logs of rounds that failed are.
func (r runner) logs() string { return strings.TrimSuffix(r.results, ".jsonl") + ".logs" }

// hangs is after how much time beyond torture.Limit a round is made to show its stacks: the round
// itself should have noticed before.
const hangs = 10 * time.Minute

// command is the test program of a round, and what it is told. It is run in the folder of its
// package, as go test does.
func (r runner) command(ctx context.Context, kind torture.Kind, seed uint64) *exec.Cmd {
	of := torture.Test{Package: "cmd/pailfs/systemtest", Name: "TestTorture", Seed: torture.EnvSeed, Full: []string{torture.EnvKind + "=" + kind.Name, torture.EnvSoak + "=" + r.soak.String()}}
	if kind.Of != nil {
		of = *kind.Of
	}
	program := filepath.Join(r.tests, filepath.Base(of.Package)+".test")
	cmd := exec.CommandContext(ctx, program, "-test.run=^"+of.Name+"$", "-test.v", "-test.timeout=0", fmt.Sprintf("-test.short=%t", r.short))
	cmd.Dir = of.Package
	size := of.Full
	if r.short {
		size = of.Short
	}
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", of.Seed, seed), torture.EnvProgram+"="+r.program)
	cmd.Env = append(cmd.Env, size...)
	return cmd
}

// round runs one.
func (r runner) round(ctx context.Context, kind torture.Kind, seed uint64) (torture.Result, error) {
	result := torture.Result{Kind: kind.Name, Seed: seed, Commit: r.commit, Began: time.Now().UTC().Truncate(time.Second)}
	dir, err := os.MkdirTemp("", "pailfs-torture-")
	if err != nil {
		return result, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // tests are also other users
		return result, err
	}
	report := filepath.Join(dir, "report")
	limit := torture.Limit(kind.Name, r.soak)
	if r.short {
		limit = hangs // what takes seconds
	}
	ctx, cancel := context.WithTimeout(ctx, hangs+limit)
	defer cancel()
	cmd := r.command(ctx, kind, seed)
	cmd.Env = append(cmd.Env, torture.EnvReport+"="+report, "TMPDIR="+dir)
	if kind.Name == torture.Soak {
		profiles, err := filepath.Abs(filepath.Join(r.logs(), fmt.Sprintf("%s-%d.heap", kind.Name, seed)))
		if err := errors.Join(err, os.MkdirAll(profiles, 0o755)); err != nil {
			return result, err
		}
		cmd.Env = append(cmd.Env, torture.EnvProfiles+"="+profiles)
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGQUIT) } // it tells what its goroutines do
	cmd.WaitDelay = time.Minute
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	began := time.Now()
	err = cmd.Run()
	result.OK, result.Seconds = err == nil, time.Since(began).Seconds()
	if text, err := os.ReadFile(report); err == nil {
		if err := json.Unmarshal(text, &result.Report); err != nil {
			return result, fmt.Errorf("report of %s seed %d: %w", kind.Name, seed, err)
		}
	} else if result.OK {
		result.Report.What = torture.Told(said.String())
	}
	if result.OK {
		return result, nil
	}
	result.Failure = torture.Failure(said.String())
	if err := os.MkdirAll(r.logs(), 0o755); err != nil {
		return result, err
	}
	return result, os.WriteFile(filepath.Join(r.logs(), fmt.Sprintf("%s-%d.log", kind.Name, seed)), said.Bytes(), 0o644)
}
