package warm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/budget"
	"github.com/pailfs/pailfs/prefetch/internal/life"
	"github.com/pailfs/pailfs/prefetch/internal/news"
	"github.com/pailfs/pailfs/prefetch/internal/scheduler"
	"github.com/pailfs/pailfs/prefetch/rights"
	"github.com/pailfs/pailfs/prefetch/session"
)

// A job is charged as one, so each is small: some hundreds of kilobytes at most.
const (
	// maxPending bounds the paths of a job that were not walked yet, in bytes with what is
	// kept beside each.
	maxPending = 64 << 10
	// maxFiles bounds the files that were found and not begun.
	maxFiles = 512
	// maxResults bounds the results that nobody has fetched, in bytes: where there are
	// more, nothing is begun.
	maxResults = 128 << 10
	// besidePath is what is kept beside the text of a path or of a result.
	besidePath = 192
	// jobIdle is how long a job lives that nobody asks after.
	jobIdle = 5 * time.Minute
)

// ErrNoJob means that there is no such warm job: it was closed, nobody asked after
// it for too long, or it is another user's.
var ErrNoJob = errors.New("no such warm job")

// Result tells what became of one path, or of a file below it that failed.
type Result struct {
	Seq  int64  `json:"seq"`
	Path string `json:"path"`
	// State is ready, partly (some files of a folder are not) or failed.
	State string `json:"state"`
	// Files and Bytes are those that are in the cache.
	Files int64  `json:"files"`
	Bytes int64  `json:"bytes"`
	Error string `json:"error,omitempty"`
	// Err is what Error says, if a single error is meant.
	Err error `json:"-"`

	// below says that the path was not named, but found below one that was.
	below bool
}

// Progress is the state of a warm job.
type Progress struct {
	// Files and Bytes are what was found so far, DoneFiles and DoneBytes what is in
	// the cache of it, FetchedBytes what had to be fetched for that.
	Files        int64 `json:"files"`
	Bytes        int64 `json:"bytes"`
	DoneFiles    int64 `json:"done_files"`
	DoneBytes    int64 `json:"done_bytes"`
	FetchedBytes int64 `json:"fetched_bytes"`
	// Failed counts the files, folders and paths that could not be brought, and Denied those of
	// them that may not be read, because of modes or because the bucket denies it. Of what was
	// found below a path and may not be read nothing else may be told.
	Failed int64 `json:"failed"`
	Denied int64 `json:"denied,omitempty"`
	// Finished says that no path is left and no more will come.
	Finished bool     `json:"finished"`
	Results  []Result `json:"results"`
	Next     int64    `json:"next"`
	// Withheld counts results that come later: it cannot be told at present whether who
	// asks may read what they are about.
	Withheld int64 `json:"withheld,omitempty"`
}

// Cache is what this package needs of a [cache.Cache].
type Cache interface {
	Fetch(ctx context.Context, obj oss.Object) error
	Hold(obj oss.Object)
	Unhold(obj oss.Object, released bool)
	Residency(obj oss.Object) cache.Residency
}

// Config is the configuration of [Jobs]. All of it is needed.
type Config struct {
	// Rights leads from the paths of a job to objects.
	Rights rights.Rights
	// Ledger says how many jobs a user may have.
	Ledger *budget.Ledger
	// NewID names jobs.
	NewID func() string
	// Held tells how many bytes may be held in the cache, and how many others hold.
	Held func() (budget, charged int64)
	// Wake says that [Jobs.Next] may have something.
	Wake func()
}

// Jobs are the jobs of all users. They are safe for concurrent use.
type Jobs struct {
	cfg   Config
	cache Cache

	mu struct {
		sync.Mutex
		jobs  map[string]*job
		order []*job
		// news are told when anything changes.
		news news.News
	}
}

// New returns no jobs yet.
func New(cfg Config, c Cache) *Jobs {
	s := &Jobs{cfg: cfg, cache: c}
	s.mu.jobs = make(map[string]*job)
	return s
}

// Len returns how many jobs there are.
func (s *Jobs) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.jobs)
}

// job brings paths into the cache.
type job struct {
	id      string
	uid     uint32
	payer   budget.User
	each    bool
	life    life.Life
	asked   time.Time
	pending []*target
	files   []file
	// pendingBytes and resultBytes are what pending and results take.
	pendingBytes, resultBytes int
	// walking says that a path is being walked.
	walking bool
	last    bool
	// charged is what the job has brought or brings, and open how many paths are not
	// done.
	charged  int64
	open     int
	progress Progress
	results  []Result
	seq      int64
}

// target is one path of a job.
type target struct {
	path         string
	who          session.Who
	files, bytes int64
	left         int
	walked       bool
	failed       int64
	err          error
}

type file struct {
	of   *target
	path string
	obj  oss.Object
	// staged says that its bytes are here, and no object yet.
	staged bool
}

// Open begins a job. With each there is a result for every file of a folder. It fails
// with a [budget.Exceeded] if the user has too many.
func (s *Jobs) Open(u budget.User, each bool) (string, error) {
	if err := s.cfg.Ledger.Take(u, budget.Jobs, 1); err != nil {
		return "", err
	}
	j := &job{id: s.cfg.NewID(), uid: u.UID, payer: u, each: each, asked: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.jobs[j.id] = j
	s.mu.order = append(s.mu.order, j)
	return j.id, nil
}

// size returns how many bytes a result takes.
func (r *Result) size() int { return besidePath + len(r.Path) + len(r.Error) }

// fitting returns how many of the paths, from the first on, a job takes: one at least if
// it has none.
func (j *job) fitting(paths []string) (n int) {
	bytes := j.pendingBytes
	for _, path := range paths {
		bytes += besidePath + len(path)
		if bytes > maxPending && n+len(j.pending) > 0 {
			break
		}
		n++
	}
	return n
}

// jobLocked returns a job of the user, and notes that somebody asks after it.
func (s *Jobs) jobLocked(id string, uid uint32) (*job, error) {
	j := s.mu.jobs[id]
	if j == nil || j.uid != uid && uid != 0 {
		return nil, ErrNoJob
	}
	j.asked = time.Now()
	return j, nil
}

// Add adds paths to a job, to be brought with the rights of who, and returns how many
// of them it took: fewer when it has enough to do. last says that no more will come after
// these.
func (s *Jobs) Add(ctx context.Context, id string, who session.Who, paths []string, last bool) (accepted int, err error) {
	for {
		s.mu.Lock()
		j, err := s.jobLocked(id, who.UID)
		if err != nil {
			s.mu.Unlock()
			return 0, err
		}
		n := j.fitting(paths)
		for _, path := range paths[:n] {
			j.pending = append(j.pending, &target{path: path, who: who})
			j.pendingBytes += besidePath + len(path)
		}
		j.open += n
		j.last = j.last || last && n == len(paths)
		changed := s.mu.news.Next()
		if n > 0 || len(paths) == 0 {
			s.mu.news.Tell()
			s.mu.Unlock()
			s.cfg.Wake()
			return n, nil
		}
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, nil
		}
	}
}

// Progress tells who asks the state of a job with the results after the number
// after. It waits for news until ctx ends. Rights may have been changed since the paths were
// walked, so they are asked again. While the store is away and does not say what they are,
// results are kept back, which no number passes over, and only counts go on. A store that
// answers and denies is not waited for.
func (s *Jobs) Progress(ctx context.Context, id string, who session.Who, after int64) (Progress, error) {
	now, err := s.news(ctx, id, who.UID, after)
	asked, cancel := rights.Asking(ctx)
	defer cancel()
	readable := now.Results[:0]
	for i, r := range now.Results {
		switch err := s.cfg.Rights.Refused(asked, who, r.Path); {
		case err == nil:
			readable = append(readable, r)
		case !rights.Denied(err) && !rights.Unreadable(err):
			now.Next, now.Finished = r.Seq-1, false
			now.Withheld = int64(len(now.Results) - i)
			now.Results = readable
			if len(readable) == 0 {
				<-ctx.Done() // it is no news
			}
			return now, nil
		case r.below: // nor may its name be told
		default:
			readable = append(readable, Result{Seq: r.Seq, Path: r.Path, State: "failed", Error: err.Error(), Err: err})
		}
	}
	now.Results = readable
	return now, err
}

// read forgets the results up to the number after, and returns how many there were.
func (j *job) read(after int64) int {
	before := len(j.results)
	j.results = slices.DeleteFunc(j.results, func(r Result) bool {
		if r.Seq > after {
			return false
		}
		j.resultBytes -= r.size()
		return true
	})
	return before - len(j.results)
}

// news is Progress before rights are asked.
func (s *Jobs) news(ctx context.Context, id string, uid uint32, after int64) (Progress, error) {
	for {
		s.mu.Lock()
		j, err := s.jobLocked(id, uid)
		if err != nil {
			s.mu.Unlock()
			return Progress{}, err
		}
		if j.read(after) > 0 {
			s.mu.news.Tell() // a walk may wait for room for results
		}
		now := j.progress
		now.Finished = j.last && j.open == 0
		now.Results = append([]Result{}, j.results[:min(len(j.results), 64)]...)
		now.Next = after
		if n := len(now.Results); n > 0 {
			now.Next = now.Results[n-1].Seq
		}
		now.Finished = now.Finished && len(now.Results) == len(j.results)
		changed := s.mu.news.Next()
		s.mu.Unlock()
		if len(now.Results) > 0 || now.Finished {
			return now, nil
		}
		select {
		case <-changed:
			if ctx.Err() != nil {
				return now, nil
			}
		case <-ctx.Done():
			return now, nil
		}
	}
}

// Close ends a job. What is on its way for it is stopped.
func (s *Jobs) Close(id string, uid uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.jobLocked(id, uid)
	if err != nil {
		return err
	}
	s.endLocked(j)
	return nil
}

func (s *Jobs) endLocked(j *job) {
	j.life.End()
	delete(s.mu.jobs, j.id)
	s.cfg.Ledger.Give(j.payer, budget.Jobs, 1)
	s.mu.order = slices.DeleteFunc(s.mu.order, func(o *job) bool { return o == j })
	s.mu.news.Tell()
}

// Expire ends the jobs that nobody asks after.
func (s *Jobs) Expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range slices.Clone(s.mu.order) {
		if now.Sub(j.asked) > jobIdle {
			s.endLocked(j)
		}
	}
}

// Next is the source of what is warmed. The jobs take turns.
func (s *Jobs) Next() (scheduler.Job, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range len(s.mu.order) {
		j := s.mu.order[0]
		s.mu.order = append(s.mu.order[1:], j)
		if j.resultBytes >= maxResults {
			continue // nobody reads them
		}
		if len(j.files) > 0 {
			f := j.files[0]
			j.files[0] = file{}
			j.files = j.files[1:]
			return scheduler.Job{Object: f.obj, Run: func(ctx context.Context) { s.bringFile(ctx, j, f) }}, true
		}
		if len(j.pending) > 0 && !j.walking {
			path := j.pending[0]
			j.pending[0] = nil
			j.pending = j.pending[1:]
			j.pendingBytes -= besidePath + len(path.path)
			j.walking = true
			return scheduler.Job{Run: func(ctx context.Context) { s.walk(ctx, j, path) }}, true
		}
	}
	return scheduler.Job{}, false
}

// walk finds the files of a path. It waits while enough are known.
func (s *Jobs) walk(ctx context.Context, j *job, path *target) {
	ctx, done := j.life.Within(ctx)
	defer done()
	err := rights.Walk(ctx, s.cfg.Rights, path.who, path.path, func(name string, f rights.Found) error {
		for {
			s.mu.Lock()
			switch {
			case f.Err != nil && j.resultBytes < maxResults:
				j.failLocked(path, f.Err)
				s.resultLocked(j, Result{Path: name, State: "failed", Error: f.Err.Error(), Err: f.Err, below: true})
				s.mu.news.Tell()
				s.mu.Unlock()
				return ctx.Err()
			case f.Err == nil && len(j.files) < maxFiles:
				j.files = append(j.files, file{of: path, path: name, obj: f.Object, staged: f.Staged})
				path.left++
				j.progress.Files++
				j.progress.Bytes += f.Object.Size
				s.mu.Unlock()
				s.cfg.Wake()
				return nil
			}
			changed := s.mu.news.Next()
			s.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	path.walked, j.walking = true, false
	if err != nil {
		path.err = err
		j.failLocked(path, err)
	}
	s.donePathLocked(j, path)
}

// failLocked counts what could not be brought of a path.
func (j *job) failLocked(path *target, err error) {
	path.failed++
	j.progress.Failed++
	if rights.Unreadable(err) {
		j.progress.Denied++
	}
}

// bringFile brings one file.
func (s *Jobs) bringFile(ctx context.Context, j *job, f file) {
	var fetched bool
	var err error
	if !f.staged {
		fetched, err = s.bring(ctx, j, f.obj)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f.of.left--
	if err != nil {
		j.failLocked(f.of, err)
		if f.path == f.of.path {
			f.of.err = err
		} else {
			s.resultLocked(j, Result{Path: f.path, State: "failed", Error: err.Error(), Err: err, below: true})
		}
	} else {
		f.of.files++
		f.of.bytes += f.obj.Size
		j.progress.DoneFiles++
		j.progress.DoneBytes += f.obj.Size
		if fetched {
			j.progress.FetchedBytes += f.obj.Size
		}
		if j.each && f.path != f.of.path {
			s.resultLocked(j, Result{Path: f.path, State: "ready", Files: 1, Bytes: f.obj.Size, below: true})
		}
	}
	s.donePathLocked(j, f.of)
}

// bring fetches an object, unless it is there, and leaves it among those that stay
// by their use. A job does not bring more than there is room for: it would only
// displace what it has brought itself.
func (s *Jobs) bring(ctx context.Context, j *job, o oss.Object) (fetched bool, err error) {
	cost := cache.Cost(o)
	budget, charged := s.cfg.Held()
	s.mu.Lock()
	if j.charged+charged+cost > budget {
		s.mu.Unlock()
		return false, fmt.Errorf("the cache has no room for it: %d bytes, of which %d are taken by this warm-up and by loaders", budget, j.charged+charged)
	}
	j.charged += cost
	s.mu.Unlock()
	there := o.Size == 0 || s.cache.Residency(o).Whole
	s.cache.Hold(o)
	within, done := j.life.Within(ctx)
	err = s.cache.Fetch(within, o)
	done()
	s.cache.Unhold(o, false)
	if err != nil {
		s.mu.Lock()
		j.charged -= cost
		s.mu.Unlock()
	}
	return !there && err == nil, err
}

// donePathLocked adds the result of a path when its last file has ended.
func (s *Jobs) donePathLocked(j *job, path *target) {
	if path.walked && path.left == 0 {
		j.open--
		r := Result{Path: path.path, State: "ready", Files: path.files, Bytes: path.bytes}
		switch {
		case path.err != nil:
			r.State, r.Error, r.Err = "failed", path.err.Error(), path.err
		case path.failed > 0:
			r.State, r.Error = "partly", fmt.Sprintf("%d of %d files could not be brought", path.failed, path.failed+path.files)
		}
		s.resultLocked(j, r)
	}
	s.mu.news.Tell()
}

func (s *Jobs) resultLocked(j *job, r Result) {
	j.seq++
	r.Seq = j.seq
	if r.Err != nil {
		r.Err = session.Brief(r.Err)
		r.Error = r.Err.Error()
	}
	j.resultBytes += r.size()
	j.results = append(j.results, r)
}
