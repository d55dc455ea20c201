package mounter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Server runs commands and keeps what they leave. One process has one alone: it takes leave of all children that it did
// not start itself.
type Server struct {
	// Pailfs is the program.
	Pailfs string
	Log    *slog.Logger

	// mu is held while a command is started and while children are looked at, so that none is taken for what a
	// command left.
	mu struct {
		sync.Mutex
		commands map[int]bool
	}
}

// Listen listens on a unix socket that root alone may use. One that a mounter before has left is replaced.
func Listen(socket string) (*net.UnixListener, error) {
	address := &net.UnixAddr{Name: socket, Net: "unixpacket"}
	if info, err := os.Lstat(socket); err == nil && info.Mode().Type() == os.ModeSocket {
		if c, err := net.DialUnix("unixpacket", nil, address); err == nil {
			_ = c.Close() // nothing was said
			return nil, fmt.Errorf("listen on %s: another mounter answers there: end it first", socket)
		}
		if err := os.Remove(socket); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", socket, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unixpacket", address)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Serve runs commands until ctx ends. Then it ends what is left of them, and waits: a daemon uploads what was written.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of daemons: %w", err)
	}
	s.mu.commands = map[int]bool{}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()

	var serving sync.WaitGroup
	accepted := make(chan error, 1)
	go func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				accepted <- err
				return
			}
			serving.Go(func() { s.answer(ctx, conn) })
		}
	}()
	for {
		select {
		case <-ended:
			if _, err := s.reap(); err != nil {
				s.Log.Warn("ended daemons cannot be taken leave of", "error", err)
			}
		case err := <-accepted:
			if ctx.Err() == nil {
				return fmt.Errorf("accept: %w", err)
			}
			serving.Wait()
			return s.end(ended)
		}
	}
}

// end sends SIGTERM to all daemons and returns when they have ended.
func (s *Server) end(ended <-chan os.Signal) error {
	left, err := s.reap()
	if err != nil {
		return err
	}
	s.Log.Info("ending daemons", "count", len(left))
	for _, pid := range left {
		if err := unix.Kill(pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("end process %d: %w", pid, err)
		}
	}
	for len(left) > 0 {
		select {
		case <-ended:
		case <-time.After(time.Second): // the signal of one that ends beside another is lost
		}
		if left, err = s.reap(); err != nil {
			return err
		}
	}
	return nil
}

// reap takes leave of what has ended, and returns the daemons that run.
func (s *Server) reap() (running []int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread has ended, and its children have another
		} else if err != nil {
			return nil, err
		}
		for field := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", list, err)
			}
			if s.mu.commands[pid] {
				continue
			}
			var status unix.WaitStatus
			switch gone, err := unix.Wait4(pid, &status, unix.WNOHANG, nil); {
			case err != nil && !errors.Is(err, unix.ECHILD):
				return nil, fmt.Errorf("wait for process %d: %w", pid, err)
			case gone == pid && (status.Signaled() || status.ExitStatus() != 0):
				s.Log.Warn("a daemon has ended", "pid", pid, "code", status.ExitStatus(), "signal", status.Signal())
			case gone == 0 && err == nil:
				running = append(running, pid)
			}
		}
	}
	return running, nil
}

// answer runs the command that a connection asks for.
func (s *Server) answer(ctx context.Context, conn *net.UnixConn) {
	defer func() { _ = conn.Close() }() // what was to be said was said
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reply := message{Version: version}
	// One that says nothing does not keep the mounter from its end.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	command, lock, err := receive(conn)
	if err == nil {
		go func() { // who asked is not waiting any more
			_, _ = conn.Read(make([]byte, 1))
			cancel()
		}()
		reply.Result, err = s.run(ctx, command, lock)
	}
	if err != nil {
		reply.Error = err.Error()
		s.Log.Warn("a command was not run", "error", err)
	}
	text, err := json.Marshal(reply)
	if err == nil {
		_, err = conn.Write(text)
	}
	if err != nil && !errors.Is(err, unix.EPIPE) {
		s.Log.Warn("an answer was not sent", "error", err)
	}
}

// receive reads a request, and the lock that comes with it.
func receive(conn *net.UnixConn) (*Command, *os.File, error) {
	buffer, rights := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4))
	n, nr, flags, _, err := conn.ReadMsgUnix(buffer, rights)
	if err != nil {
		return nil, nil, fmt.Errorf("read a request: %w", err)
	}
	var lock *os.File
	if nr > 0 {
		messages, err := unix.ParseSocketControlMessage(rights[:nr])
		if err != nil {
			return nil, nil, fmt.Errorf("read the lock of a request: %w", err)
		}
		for i := range messages {
			fds, err := unix.ParseUnixRights(&messages[i])
			if err != nil {
				return nil, nil, fmt.Errorf("read the lock of a request: %w", err)
			}
			for _, fd := range fds {
				unix.CloseOnExec(fd)
				lock = os.NewFile(uintptr(fd), "lock")
			}
		}
	}
	var request message
	if err := json.Unmarshal(buffer[:n], &request); err != nil || flags&unix.MSG_TRUNC != 0 || request.Command == nil {
		if lock != nil {
			_ = lock.Close() // it was received and used for nothing
		}
		return nil, nil, fmt.Errorf("a request of %d bytes is none of version %d: use a driver of a release nearer to this one", n, version)
	}
	return request.Command, lock, nil
}

// run runs a command to its end, which ctx brings about.
func (s *Server) run(ctx context.Context, command *Command, lock *os.File) (*Result, error) {
	c := exec.CommandContext(ctx, s.Pailfs, command.Args...)
	c.Cancel = func() error { return c.Process.Signal(unix.SIGTERM) }
	c.Env = command.Environ
	if c.Env == nil {
		c.Env = []string{} // not this process's
	}
	c.WaitDelay = 5 * time.Second
	var out, complaint bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaint
	if lock != nil {
		c.ExtraFiles = []*os.File{lock}
	}
	s.mu.Lock()
	err := c.Start()
	if err == nil {
		s.mu.commands[c.Process.Pid] = true
	}
	s.mu.Unlock()
	if lock != nil {
		if err := lock.Close(); err != nil {
			s.Log.Warn("the lock of a volume was not closed", "error", err)
		}
	}
	if err != nil {
		return nil, err
	}
	err = c.Wait()
	s.mu.Lock()
	delete(s.mu.commands, c.Process.Pid)
	s.mu.Unlock()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return nil, err
	}
	return &Result{Code: c.ProcessState.ExitCode(), Out: last(out.Bytes()), Complaint: last(complaint.Bytes())}, nil
}

// last returns the end of what a command said.
func last(said []byte) []byte { return said[max(0, len(said)-maxSaid):] }
