package control

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"time"

	"github.com/pailfs/pailfs/prefetch"
	"github.com/pailfs/pailfs/prefetch/keep"
	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
	"github.com/pailfs/pailfs/prefetch/warm"
)

// CodeNoSession means that there is no such session, or warm job, of this user:
// it was never opened, was closed, or has expired.
const CodeNoSession Code = "no-session"

// CodeUntold means that it cannot be told at present whether the caller may read what it has
// named, because the object store does not answer. Nothing was done, and the call can be repeated.
const CodeUntold Code = "untold"

// preloadPatience is how long a preload waits for room before its client is told
// how far it came, and progressPatience how long a job's news are waited for. A
// client is answered within a second.
const (
	preloadPatience  = 700 * time.Millisecond
	progressPatience = 700 * time.Millisecond
	// maxWait bounds loader.wait.
	maxWait = time.Hour
)

// HandleLoader registers the methods that PROTOCOL.md describes under "Loading":
// loader.*, warm.*, evict and measure.
//
// None of them leads from a path to anything but through [rights.Rights]. The prompt
// ones name paths only, and say nothing of what is there.
func HandleLoader(m *Mux, p *prefetch.Prefetcher) {
	l := &loader{p: p}
	m.released = p.Sessions.Released
	Handle(m, "loader.open", Anyone, l.open)
	Handle(m, "loader.close", Anyone, l.close)
	HandlePrompt(m, "loader.renew", Anyone, nil, l.renew)
	HandlePrompt(m, "loader.quota", Anyone, nil, l.quota)
	HandlePrompt(m, "loader.preload", Anyone, func(in PathsParams) bool { return in.Wait }, l.preload)
	HandlePrompt(m, "loader.active", Anyone, nil, l.active)
	HandlePrompt(m, "loader.release", Anyone, nil, l.release)
	Handle(m, "loader.wait", Anyone, l.wait)
	Handle(m, "loader.status", Anyone, l.status)
	Handle(m, "warm.open", Anyone, l.warmOpen)
	Handle(m, "warm.add", Anyone, l.warmAdd)
	Handle(m, "warm.progress", Anyone, l.warmProgress)
	Handle(m, "warm.close", Anyone, l.warmClose)
	Handle(m, "evict", Owner, l.evict)
	Handle(m, "measure", Anyone, l.measure)
}

type loader struct{ p *prefetch.Prefetcher }

// answer gives an error of the prefetcher its code.
func answerOf(err error) error {
	if errors.Is(err, session.ErrNoSession) || errors.Is(err, warm.ErrNoJob) {
		return Errorf(CodeNoSession, "%v", err)
	}
	if errors.Is(err, session.ErrNeverFits) {
		return Errorf(CodeBadRequest, "%v", err)
	}
	return err
}

// OpenParams are the parameters of loader.open.
type OpenParams struct {
	Task        string `json:"task,omitempty"`
	Worker      int    `json:"worker"`
	Persistence string `json:"persistence,omitempty"`
	Buffer      int    `json:"buffer"`
	Instance    string `json:"instance,omitempty"`
	// Lease is in seconds; 0 means the default.
	Lease         float64 `json:"lease_seconds,omitempty"`
	DropOnRelease bool    `json:"drop_on_release,omitempty"`
}

// OpenResult is the result of loader.open.
type OpenResult struct {
	Session     session.ID       `json:"session"`
	Adopted     int              `json:"adopted"`
	Quota       int              `json:"quota"`
	Budget      int64            `json:"budget_bytes"`
	Lease       float64          `json:"lease_seconds"`
	Persistence keep.Persistence `json:"persistence"`
}

func (l *loader) open(ctx context.Context, c Caller, in OpenParams) (OpenResult, error) {
	const maxText, maxLease = 1024, 7 * 24 * time.Hour
	switch {
	case in.Buffer < 1 || in.Buffer > session.MaxBuffer:
		return OpenResult{}, Errorf(CodeBadRequest, "buffer %d: it must be 1 to %d files", in.Buffer, session.MaxBuffer)
	case in.Worker < 0:
		return OpenResult{}, Errorf(CodeBadRequest, "worker %d is negative", in.Worker)
	case in.Lease < 0 || in.Lease > maxLease.Seconds():
		return OpenResult{}, Errorf(CodeBadRequest, "a lease of %v seconds: it must be 0 to %v", in.Lease, maxLease.Seconds())
	case len(in.Task) > maxText || len(in.Instance) > maxText || len(in.Persistence) > maxText:
		return OpenResult{}, Errorf(CodeBadRequest, "task, instance and persistence must each be shorter than %d bytes", maxText)
	}
	task := in.Task
	if in.Persistence != "" {
		path, err := c.Path(in.Persistence)
		if err != nil {
			return OpenResult{}, err
		}
		task = path
	}
	got, err := l.p.Keeper.Open(ctx, session.Key{UID: c.UID, Guest: c.Guest, Task: task, Worker: in.Worker}, session.Params{
		Instance: in.Instance, Buffer: in.Buffer, DropOnRelease: in.DropOnRelease, Shared: in.Persistence != "",
		Lease: time.Duration(in.Lease * float64(time.Second)), Who: c.Who(), Handle: c.Handle,
	})
	if err != nil {
		return OpenResult{}, answerOf(err)
	}
	return OpenResult{
		Session: got.Session, Adopted: got.Adopted, Quota: got.Quota, Budget: got.Budget,
		Lease: got.Lease.Seconds(), Persistence: keptFor(c, got.Persistence),
	}, nil
}

// keptFor is what c is told of where its session is kept. Who sees a subdirectory of the mount, as a
// container does, is told paths below that, and no path of the host.
func keptFor(c Caller, p keep.Persistence) keep.Persistence {
	switch {
	case c.Dir == "" && p.Detail != nil:
		p.Reason += ": " + p.Detail.Error()
	case c.Dir == "":
	case p.Kind == keep.KindMount:
		p.Path = seen(c.Dir, p.Path)
	default:
		p.Path = ""
	}
	return p
}

// CloseParams are the parameters of loader.close.
type CloseParams struct {
	Session session.ID `json:"session"`
	Keep    bool       `json:"keep,omitempty"`
}

// CloseResult is the result of loader.close.
type CloseResult struct {
	Released int `json:"released"`
}

func (l *loader) close(_ context.Context, c Caller, in CloseParams) (CloseResult, error) {
	released, err := l.p.Keeper.Close(in.Session, c.UID, in.Keep)
	return CloseResult{released}, answerOf(err)
}

// RenewParams are the parameters of loader.renew.
type RenewParams struct {
	Session session.ID `json:"session"`
}

// RenewResult is the result of loader.renew.
type RenewResult struct {
	Lease float64 `json:"lease_seconds"`
}

func (l *loader) renew(_ context.Context, c Caller, in RenewParams) (RenewResult, error) {
	lease, err := l.p.Sessions.Renew(session.Name{Session: in.Session, UID: c.UID, Handle: c.Handle})
	return RenewResult{lease.Seconds()}, answerOf(err)
}

// QuotaParams are the parameters of loader.quota.
type QuotaParams struct {
	Session session.ID `json:"session"`
	Index   int        `json:"index"`
}

// QuotaResult is the result of loader.quota.
type QuotaResult struct {
	Quota int `json:"quota"`
}

func (l *loader) quota(_ context.Context, c Caller, in QuotaParams) (QuotaResult, error) {
	quota, err := l.p.Sessions.Quota(session.Name{Session: in.Session, UID: c.UID, Index: in.Index, Handle: c.Handle})
	return QuotaResult{quota}, answerOf(err)
}

// PathsParams name paths of a stream: the parameters of loader.preload,
// loader.active, loader.release, loader.wait and loader.status.
type PathsParams struct {
	Session session.ID `json:"session"`
	Index   int        `json:"index"`
	// Base is put before each path.
	Base  string   `json:"base,omitempty"`
	Paths []string `json:"paths,omitempty"`
	Seq   int      `json:"seq,omitempty"`
	// Wait makes loader.preload wait for room.
	Wait bool `json:"wait,omitempty"`
	// Timeout is how long loader.wait waits, in milliseconds.
	Timeout int64 `json:"timeout_ms,omitempty"`
}

// resolve returns the stream and the paths in the mount.
func (in *PathsParams) resolve(c Caller) (session.Name, []string, error) {
	n := session.Name{Session: in.Session, UID: c.UID, Index: in.Index, Seq: in.Seq, Handle: c.Handle}
	if in.Index < 0 || in.Seq < 0 {
		return n, nil, Errorf(CodeBadRequest, "index %d, seq %d: they must not be negative", in.Index, in.Seq)
	}
	paths, err := absolute(c, in.Base, in.Paths)
	return n, paths, err
}

// PreloadResult is the result of loader.preload.
type PreloadResult struct {
	Accepted int `json:"accepted"`
	Over     int `json:"over"`
	Dropped  int `json:"dropped"`
	Quota    int `json:"quota"`
	Held     int `json:"held"`
	// NoRoom counts those dropped that the user's budget of names has no room for.
	NoRoom int `json:"no_room,omitempty"`
}

func (l *loader) preload(ctx context.Context, c Caller, in PathsParams) (PreloadResult, error) {
	n, paths, err := in.resolve(c)
	if err != nil {
		return PreloadResult{}, err
	}
	var out session.Outcome
	var quota int
	if in.Wait {
		ctx, cancel := context.WithTimeout(ctx, preloadPatience)
		defer cancel()
		out, quota, err = l.p.Sessions.PreloadPatiently(ctx, n, paths)
	} else {
		out, quota, err = l.p.Sessions.Preload(n, paths)
	}
	return PreloadResult{out.Accepted, out.Over, out.Dropped, quota, out.Held, out.NoRoom}, answerOf(err)
}

// ActiveResult is the result of loader.active.
type ActiveResult struct {
	Implicit int `json:"implicit"`
	// NoRoom counts those that were not announced, nor are, for want of room.
	NoRoom int `json:"no_room,omitempty"`
}

func (l *loader) active(_ context.Context, c Caller, in PathsParams) (ActiveResult, error) {
	n, paths, err := in.resolve(c)
	if err != nil {
		return ActiveResult{}, err
	}
	implicit, noRoom, err := l.p.Sessions.Active(n, paths)
	return ActiveResult{implicit, noRoom}, answerOf(err)
}

// ReleaseResult is the result of loader.release.
type ReleaseResult struct {
	Released int `json:"released"`
	Unknown  int `json:"unknown"`
}

func (l *loader) release(_ context.Context, c Caller, in PathsParams) (ReleaseResult, error) {
	n, paths, err := in.resolve(c)
	if err != nil {
		return ReleaseResult{}, err
	}
	released, unknown, err := l.p.Sessions.Release(n, paths)
	return ReleaseResult{released, unknown}, answerOf(err)
}

// FileStatus is what is told of one path.
type FileStatus struct {
	// Path is as the caller wrote it, after the base.
	Path  string `json:"path"`
	State string `json:"state"`
	Ready bool   `json:"ready,omitempty"`
	Files int64  `json:"files,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
	Error string `json:"error,omitempty"`
	Errno string `json:"errno,omitempty"`
}

func fileStatuses(c Caller, in PathsParams, files []session.File) []FileStatus {
	out := make([]FileStatus, len(files))
	for i, f := range files {
		out[i] = FileStatus{Path: in.Paths[i], State: f.State, Ready: f.Ready, Files: f.Files, Bytes: f.Bytes}
		if f.Err != nil {
			out[i].Errno = rights.Errno(f.Err)
			out[i].Error = explain(c, f.Err)
		}
	}
	return out
}

// Refusal returns what c is told who has named a path and may not read what is there, or
// of whom that cannot be told: err is what [rights.Rights] say.
func Refusal(c Caller, err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case rights.Errno(err) == "EACCES":
		return Errorf(CodeRefused, "%s", explain(c, err))
	case rights.Denied(err):
		return Errorf(CodeFailed, "%s", explain(c, err))
	default:
		return Errorf(CodeUntold, "it cannot be told at present whether user %d may read it: the object store may not answer; try again later", c.UID)
	}
}

// explain returns the text of err. To callers who see a subdirectory only it does
// not name what lies above it.
func explain(c Caller, err error) string {
	switch {
	case errors.Is(err, iofs.ErrPermission):
		return fmt.Sprintf("user %d may not read it", c.UID)
	case c.Dir == "":
		return err.Error()
	case rights.Errno(err) == "ENOENT":
		return "no such file or folder"
	case rights.Errno(err) == "EACCES":
		return "the object store denies access"
	case rights.Errno(err) == "ESTALE":
		return "the object has been replaced"
	default:
		return "the object could not be fetched; the daemon's log says why"
	}
}

// WaitResult is the result of loader.wait.
type WaitResult struct {
	Done  bool         `json:"done"`
	Files []FileStatus `json:"files"`
}

func (l *loader) wait(ctx context.Context, c Caller, in PathsParams) (WaitResult, error) {
	n, paths, err := in.resolve(c)
	if err != nil {
		return WaitResult{}, err
	}
	if in.Timeout < 0 {
		return WaitResult{}, Errorf(CodeBadRequest, "a timeout of %d ms is negative", in.Timeout)
	}
	timeout := time.Duration(min(in.Timeout, maxWait.Milliseconds())) * time.Millisecond
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	files, done, err := l.p.Sessions.Wait(waiting, c.Who(), n, paths)
	if err != nil {
		return WaitResult{}, answerOf(err)
	}
	return WaitResult{done, fileStatuses(c, in, files)}, nil
}

// StatusResult is the result of loader.status: of paths, or of the session.
type StatusResult struct {
	Files   []FileStatus     `json:"files,omitempty"`
	Session *session.Summary `json:"session,omitempty"`
}

func (l *loader) status(ctx context.Context, c Caller, in PathsParams) (StatusResult, error) {
	if len(in.Paths) == 0 {
		s, err := l.p.Sessions.Session(in.Session, c.Who())
		if err != nil {
			return StatusResult{}, answerOf(err)
		}
		if s.Shared {
			s.Task = seen(c.Dir, s.Task)
		}
		return StatusResult{Session: &s}, nil
	}
	n, paths, err := in.resolve(c)
	if err != nil {
		return StatusResult{}, err
	}
	files, err := l.p.Sessions.Status(ctx, c.Who(), n, paths)
	if err != nil {
		return StatusResult{}, answerOf(err)
	}
	return StatusResult{Files: fileStatuses(c, in, files)}, nil
}
