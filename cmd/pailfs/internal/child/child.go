package child

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// word is the first argument of a child: the second is the verb, the third the path.
const word = "look-at"

// Verb makes a call about path. The context ends when nobody waits for the answer any more.
type Verb func(ctx context.Context, path string, request json.RawMessage) (answer any, err error)

// reply is what a child writes.
type reply struct {
	Answer json.RawMessage `json:"answer,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// Abandoned is the error of a call that did not return in time.
type Abandoned struct {
	// Err is that of the context.
	Err error
	// Ended is closed when the process that was left behind has ended, or if there was none.
	Ended <-chan struct{}
}

// Error implements error.
func (a *Abandoned) Error() string { return "no answer: " + a.Err.Error() }

// Unwrap returns the error of the context.
func (a *Abandoned) Unwrap() error { return a.Err }

// Run lets a child make the call that verb names about path, and stores what it answers in answer,
// a pointer or nil. When ctx ends first the error is an [Abandoned].
func Run(ctx context.Context, verb, path string, request, answer any) error {
	if err := ctx.Err(); err != nil {
		none := make(chan struct{})
		close(none)
		return &Abandoned{Err: err, Ended: none}
	}
	text, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	p, err := start(verb, path)
	if err != nil {
		return fmt.Errorf("start a process that looks at %q: %w", path, err)
	}
	defer p.leave()
	go p.reap()
	go p.converse(text)
	select {
	case said := <-p.said:
		return said.read(answer)
	case <-ctx.Done():
		return &Abandoned{Err: ctx.Err(), Ended: p.ended}
	}
}

// process is a child.
type process struct {
	cmd *exec.Cmd
	// requests leads to it, and answers from it.
	requests, answers *os.File
	said              chan output
	ended             chan struct{}
}

// maxAnswer is how many bytes a child may answer: far more than any verb has to say.
const maxAnswer = 64 << 20

// output is all that a child wrote.
type output struct {
	text []byte
	err  error
}

// start begins a child. Signals of the terminal do not reach it: its parent says when it is to end.
func start(verb, path string) (p *process, err error) {
	var files []*os.File
	pipe := func() (r, w *os.File) {
		if err == nil {
			if r, w, err = os.Pipe(); err == nil {
				files = append(files, r, w)
			}
		}
		return r, w
	}
	in, requests := pipe()
	answers, out := pipe()
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"pailfs", word, verb, path}, Env: []string{},
		Stdin: in, Stdout: out, Stderr: out, SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err == nil {
		if err = cmd.Start(); errors.Is(err, os.ErrNotExist) {
			err = errors.New("/proc/self/exe is not there: pailfs needs /proc, mount it with mount -t proc proc /proc")
		}
	}
	if err != nil {
		for _, f := range files {
			_ = f.Close() // nothing was written
		}
		return nil, err
	}
	_, _ = in.Close(), out.Close() // the child has them
	return &process{cmd: cmd, requests: requests, answers: answers, said: make(chan output, 1), ended: make(chan struct{})}, nil
}

// converse gives the child its request and reads until it ends. One that ended before said why.
func (p *process) converse(request []byte) {
	_, err := p.requests.Write(append(request, '\n'))
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		p.said <- output{err: err}
		return
	}
	text, err := io.ReadAll(io.LimitReader(p.answers, maxAnswer+1))
	if err == nil && len(text) > maxAnswer {
		text, err = nil, fmt.Errorf("it has more than %d bytes", maxAnswer)
	}
	p.said <- output{text, err}
}

// leave tells the child that nobody waits any more.
func (p *process) leave() { _, _ = p.requests.Close(), p.answers.Close() }

// reap waits for the end of the child, however late it comes.
func (p *process) reap() {
	_ = p.cmd.Wait() // what it had to say it wrote
	close(p.ended)
}

// read stores the child's answer.
func (o output) read(answer any) error {
	if o.err != nil {
		return fmt.Errorf("read answer of a child: %w", o.err)
	}
	var r reply
	if err := json.Unmarshal(o.text, &r); err != nil {
		said, _, _ := strings.Cut(string(bytes.TrimSpace(o.text)), "\n")
		return fmt.Errorf("a child ended without an answer, and said %q", said)
	}
	if r.Error != "" {
		return errors.New(r.Error)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(r.Answer, answer)
}

// lastWish is how long a child for which nobody waits may take to end in order, for example to
// take a call back.
const lastWish = 2 * time.Second

// Serve makes the call that args, those of this process, ask for, if it is a child. It returns
// whether it is one, and how it is to end.
func Serve(args []string, verbs map[string]Verb) (code int, served bool) {
	if len(args) != 4 || args[1] != word {
		return 0, false
	}
	verb, known := verbs[args[2]]
	if !known {
		fmt.Fprintf(os.Stderr, "%s is not for people\n", word)
		return 2, true
	}
	requests := json.NewDecoder(os.Stdin)
	var request json.RawMessage
	if err := requests.Decode(&request); err != nil {
		return 1, true // nobody waits
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_ = requests.Decode(new(json.RawMessage)) // nothing comes: it ends when the parent leaves
		cancel()
		time.Sleep(lastWish)
		os.Exit(1)
	}()
	var r reply
	answer, err := verb(ctx, args[3], request)
	if err == nil {
		r.Answer, err = json.Marshal(answer)
	}
	if err != nil {
		r.Error = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return 1, true
	}
	return 0, true
}
