package mounting

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/prefetch/control"
)

// userRole makes the test program a process of another user: it reads an errand, does it
// and writes what came of it.
const userRole = "user"

// user is somebody with an account on the machine.
type user struct {
	name     string
	uid, gid uint32
	groups   []uint32
	// contained says that it is in a PID namespace of its own, as in a container.
	contained bool
}

// errand is what a process of a user does in a mount.
type errand struct {
	// Dir is the directory of the mount that is opened for the control channel.
	Dir string
	// Probe are paths, relative to Dir, of which the kernel is asked.
	Probe []string
	Calls []userCall
}

type userCall struct {
	Method string
	Params any
}

// harvest is what came of an errand.
type harvest struct {
	Kernel  []verdict
	Answers []userAnswer
}

// verdict is what the kernel lets a user do with a path.
type verdict struct {
	// Errno is what open(2) gave: "" or the name of an error.
	Errno string
	// Files are the sizes of the regular files that can be opened at or below the path,
	// Denied counts what cannot.
	Files  map[string]int64
	Denied int
	// Writable says that access(2) allows to write and to search.
	Writable bool
}

type userAnswer struct {
	Result json.RawMessage
	// Code is that of an error, and Message its text.
	Code, Message string
}

// run does the errand as u, in a process of its own.
func (u *user) run(t *testing.T, e errand) harvest {
	t.Helper()
	input, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), programtest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = programtest.Environ("PAILFS_TEST_ROLE=" + userRole)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.uid, Gid: u.gid, Groups: u.groups}}
	if u.contained {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWPID
	}
	cmd.Dir = "/"
	cmd.Stdin = bytes.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", u.name, err, &stderr)
	}
	var h harvest
	if err := json.Unmarshal(output, &h); err != nil {
		t.Fatalf("%s: %v: %s", u.name, err, output)
	}
	return h
}

// call is run with one call, which must succeed.
func (u *user) call(t *testing.T, dir, method string, params, result any) {
	t.Helper()
	a := u.run(t, errand{Dir: dir, Calls: []userCall{{method, params}}}).Answers[0]
	if a.Code != "" {
		t.Fatalf("%s calls %s: %s: %s", u.name, method, a.Code, a.Message)
	}
	a.into(t, result)
}

// into decodes the result.
func (a *userAnswer) into(t *testing.T, result any) {
	t.Helper()
	if err := json.Unmarshal(a.Result, result); err != nil {
		t.Fatalf("%v: %s", err, a.Result)
	}
}

// actAsUser is the process.
func actAsUser() int {
	var e errand
	if err := json.NewDecoder(os.Stdin).Decode(&e); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	client, err := control.Dial(e.Dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = client.Close() }() // the process ends
	var h harvest
	for _, path := range e.Probe {
		h.Kernel = append(h.Kernel, probe(filepath.Join(e.Dir, path)))
	}
	for _, c := range e.Calls {
		h.Answers = append(h.Answers, callAsUser(client, c))
	}
	if err := json.NewEncoder(os.Stdout).Encode(h); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func callAsUser(client *control.Client, c userCall) (a userAnswer) {
	ctx, cancel := context.WithTimeout(context.Background(), programtest.Patience)
	defer cancel()
	err := client.Call(ctx, c.Method, c.Params, &a.Result)
	var told *control.Error
	switch {
	case errors.As(err, &told):
		a.Code, a.Message = string(told.Code), told.Message
	case err != nil:
		a.Code, a.Message = "client", err.Error()
	}
	return a
}

// probe asks the kernel.
func probe(path string) (v verdict) {
	v.Files = map[string]int64{}
	v.Writable = unix.Access(path, unix.W_OK|unix.X_OK) == nil
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // of a fifo nobody else has an end
	if err != nil {
		v.Errno = errnoName(err)
		return v
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		v.Errno = errnoName(err)
		return v
	}
	switch {
	case info.Mode().IsRegular():
		v.Files[""] = info.Size()
		return v
	case !info.IsDir():
		v.Errno = "EIO" // there is nothing to be loaded
		return v
	}
	v.below(path, "")
	return v
}

// below opens everything in a directory, but links, fifos and sockets.
func (v *verdict) below(path, name string) {
	entries, err := os.ReadDir(path)
	if err != nil {
		v.Denied++
		return
	}
	for _, e := range entries {
		at, rel := filepath.Join(path, e.Name()), strings.TrimPrefix(name+"/"+e.Name(), "/")
		switch {
		case e.Type()&(fs.ModeSymlink|fs.ModeNamedPipe|fs.ModeSocket) != 0:
		case e.IsDir():
			if f, err := os.Open(at); err != nil {
				v.Denied++
			} else {
				_ = f.Close() // only looked at
				v.below(at, rel)
			}
		default:
			f, err := os.Open(at)
			if err != nil {
				v.Denied++
				continue
			}
			info, err := f.Stat()
			_ = f.Close() // only looked at
			if err != nil {
				v.Denied++
				continue
			}
			v.Files[rel] = info.Size()
		}
	}
}

// errnoName is what the protocol calls an error of the kernel's.
func errnoName(err error) string {
	switch {
	case errors.Is(err, unix.EACCES):
		return "EACCES"
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return "ENOENT"
	default:
		return "EIO"
	}
}
