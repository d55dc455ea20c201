package reader

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// echo is another process that returns what it is sent. How long that takes shows what
// the machine needs for two switches of processes beside everything else that runs: no
// call of a daemon can take less.
type echo struct {
	command *exec.Cmd
	in, out int // ends of pipes, so that a reader waits in a system call as for an ioctl
}

func startEcho() (*echo, error) {
	var there, back [2]int
	if err := unix.Pipe2(there[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("start echo: %w", err)
	}
	if err := unix.Pipe2(back[:], unix.O_CLOEXEC); err != nil {
		return nil, errors.Join(fmt.Errorf("start echo: %w", err), unix.Close(there[0]), unix.Close(there[1]))
	}
	e := &echo{command: exec.Command("/bin/cat"), in: there[1], out: back[0]}
	in, out := os.NewFile(uintptr(there[0]), "in"), os.NewFile(uintptr(back[1]), "out")
	e.command.Stdin, e.command.Stdout = in, out
	err := e.command.Start()
	err = errors.Join(err, in.Close(), out.Close())
	if err != nil {
		return nil, fmt.Errorf("start echo: %w", errors.Join(err, e.end()))
	}
	return e, nil
}

// take sends one byte and waits for it.
func (e *echo) take() (time.Duration, error) {
	b := []byte{1}
	began := time.Now()
	if _, err := retry(func() (int, error) { return unix.Write(e.in, b) }); err != nil {
		return 0, fmt.Errorf("echo: %w", err)
	}
	n, err := retry(func() (int, error) { return unix.Read(e.out, b) })
	if err == nil && n != 1 {
		err = errors.New("the process that echoes has ended")
	}
	if err != nil {
		return 0, fmt.Errorf("echo: %w", err)
	}
	return time.Since(began), nil
}

// retry repeats a system call that a signal has interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// end lets the process end.
func (e *echo) end() error {
	if e == nil {
		return nil
	}
	err := errors.Join(unix.Close(e.in), unix.Close(e.out))
	if e.command.Process != nil {
		err = errors.Join(err, e.command.Wait())
	}
	if err != nil {
		return fmt.Errorf("end echo: %w", err)
	}
	return nil
}
