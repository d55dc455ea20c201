package prefetch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/prefetch/budget"
	"github.com/pailfs/pailfs/prefetch/internal/life"
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

// WarmResult tells what became of one path, or of a file below it that failed.
type WarmResult struct {
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

// WarmProgress is the state of a warm job.
type WarmProgress struct {
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
	Finished bool         `json:"finished"`
	Results  []WarmResult `json:"results"`
	Next     int64        `json:"next"`
	// Withheld counts results that come later: it cannot be told at present whether who
	// asks may read what they are about.
	Withheld int64 `json:"withheld,omitempty"`
}

// warmJob brings paths into the cache.
type warmJob struct {
	id      string
	uid     uint32
	payer   budget.User
	each    bool
	life    life.Life
	asked   time.Time
	pending []*warmPath
	files   []warmFile
	// pendingBytes and resultBytes are what pending and results take.
	pendingBytes, resultBytes int
	// walking says that a path is being walked.
	walking bool
	last    bool
	// charged is what the job has brought or brings, and open how many paths are not
	// done.
	charged  int64
	open     int
	progress WarmProgress
	results  []WarmResult
	seq      int64
}

// warmPath is one path of a job.
type warmPath struct {
	path         string
	who          session.Who
	files, bytes int64
	left         int
	walked       bool
	failed       int64
	err          error
}

type warmFile struct {
	of   *warmPath
	path string
	obj  oss.Object
	// staged says that its bytes are here, and no object yet.
	staged bool
}

// OpenWarm begins a job. With each there is a result for every file of a folder. It fails
// with a [budget.Exceeded] if the user has too many.
func (p *Prefetcher) OpenWarm(u budget.User, each bool) (string, error) {
	if err := p.cfg.Ledger.Take(u, budget.Jobs, 1); err != nil {
		return "", err
	}
	j := &warmJob{id: p.cfg.NewID(), uid: u.UID, payer: u, each: each, asked: time.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.jobs[j.id] = j
	p.mu.order = append(p.mu.order, j)
	return j.id, nil
}

// size returns how many bytes a result takes.
func (r *WarmResult) size() int { return besidePath + len(r.Path) + len(r.Error) }

// fitting returns how many of the paths, from the first on, a job takes: one at least if
// it has none.
func (j *warmJob) fitting(paths []string) (n int) {
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
func (p *Prefetcher) jobLocked(id string, uid uint32) (*warmJob, error) {
	j := p.mu.jobs[id]
	if j == nil || j.uid != uid && uid != 0 {
		return nil, ErrNoJob
	}
	j.asked = time.Now()
	return j, nil
}

// AddWarm adds paths to a job, to be brought with the rights of who, and returns how many
// of them it took: fewer when it has enough to do. last says that no more will come after
// these.
func (p *Prefetcher) AddWarm(ctx context.Context, id string, who session.Who, paths []string, last bool) (accepted int, err error) {
	for {
		p.mu.Lock()
		j, err := p.jobLocked(id, who.UID)
		if err != nil {
			p.mu.Unlock()
			return 0, err
		}
		n := j.fitting(paths)
		for _, path := range paths[:n] {
			j.pending = append(j.pending, &warmPath{path: path, who: who})
			j.pendingBytes += besidePath + len(path)
		}
		j.open += n
		j.last = j.last || last && n == len(paths)
		changed := p.changedLocked()
		if n > 0 || len(paths) == 0 {
			p.settleLocked()
			p.mu.Unlock()
			p.sched.Wake()
			return n, nil
		}
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, nil
		}
	}
}

// WarmProgress tells who asks the state of a job with the results after the number
// after. It waits for news until ctx ends. Rights may have been changed since the paths were
// walked, so they are asked again. While the store is away and does not say what they are,
// results are kept back, which no number passes over, and only counts go on. A store that
// answers and denies is not waited for.
func (p *Prefetcher) WarmProgress(ctx context.Context, id string, who session.Who, after int64) (WarmProgress, error) {
	now, err := p.warmNews(ctx, id, who.UID, after)
	asked, cancel := rights.Asking(ctx)
	defer cancel()
	readable := now.Results[:0]
	for i, r := range now.Results {
		switch err := p.cfg.Rights.Refused(asked, who, r.Path); {
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
			readable = append(readable, WarmResult{Seq: r.Seq, Path: r.Path, State: "failed", Error: err.Error(), Err: err})
		}
	}
	now.Results = readable
	return now, err
}

// warmNews is WarmProgress before rights are asked.
func (p *Prefetcher) warmNews(ctx context.Context, id string, uid uint32, after int64) (WarmProgress, error) {
	for {
		p.mu.Lock()
		j, err := p.jobLocked(id, uid)
		if err != nil {
			p.mu.Unlock()
			return WarmProgress{}, err
		}
		j.results = slices.DeleteFunc(j.results, func(r WarmResult) bool {
			if r.Seq > after {
				return false
			}
			j.resultBytes -= r.size()
			return true
		})
		now := j.progress
		now.Finished = j.last && j.open == 0
		now.Results = append([]WarmResult{}, j.results[:min(len(j.results), 64)]...)
		now.Next = after
		if n := len(now.Results); n > 0 {
			now.Next = now.Results[n-1].Seq
		}
		now.Finished = now.Finished && len(now.Results) == len(j.results)
		changed := p.changedLocked()
		p.mu.Unlock()
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

// CloseWarm ends a job. What is on its way for it is stopped.
func (p *Prefetcher) CloseWarm(id string, uid uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	j, err := p.jobLocked(id, uid)
	if err != nil {
		return err
	}
	p.endWarmLocked(j)
	return nil
}

func (p *Prefetcher) endWarmLocked(j *warmJob) {
	j.life.End()
	delete(p.mu.jobs, j.id)
	p.cfg.Ledger.Give(j.payer, budget.Jobs, 1)
	p.mu.order = slices.DeleteFunc(p.mu.order, func(o *warmJob) bool { return o == j })
	p.settleLocked()
}

// expireWarm ends the jobs that nobody asks after.
func (p *Prefetcher) expireWarm(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, j := range slices.Clone(p.mu.order) {
		if now.Sub(j.asked) > jobIdle {
			p.endWarmLocked(j)
		}
	}
}

// nextWarm is the source of what is warmed. The jobs take turns.
func (p *Prefetcher) nextWarm() (scheduler.Job, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range len(p.mu.order) {
		j := p.mu.order[0]
		p.mu.order = append(p.mu.order[1:], j)
		if j.resultBytes >= maxResults {
			continue // nobody reads them
		}
		if len(j.files) > 0 {
			f := j.files[0]
			j.files[0] = warmFile{}
			j.files = j.files[1:]
			return scheduler.Job{Object: f.obj, Run: func(ctx context.Context) { p.warm(ctx, j, f) }}, true
		}
		if len(j.pending) > 0 && !j.walking {
			path := j.pending[0]
			j.pending[0] = nil
			j.pending = j.pending[1:]
			j.pendingBytes -= besidePath + len(path.path)
			j.walking = true
			return scheduler.Job{Run: func(ctx context.Context) { p.walkWarm(ctx, j, path) }}, true
		}
	}
	return scheduler.Job{}, false
}

// walkWarm finds the files of a path. It waits while enough are known.
func (p *Prefetcher) walkWarm(ctx context.Context, j *warmJob, path *warmPath) {
	ctx, done := j.life.Within(ctx)
	defer done()
	err := rights.Walk(ctx, p.cfg.Rights, path.who, path.path, func(file string, f rights.Found) error {
		for {
			p.mu.Lock()
			switch {
			case f.Err != nil && j.resultBytes < maxResults:
				j.failLocked(path, f.Err)
				p.resultLocked(j, WarmResult{Path: file, State: "failed", Error: f.Err.Error(), Err: f.Err, below: true})
				p.settleLocked()
				p.mu.Unlock()
				return ctx.Err()
			case f.Err == nil && len(j.files) < maxFiles:
				j.files = append(j.files, warmFile{of: path, path: file, obj: f.Object, staged: f.Staged})
				path.left++
				j.progress.Files++
				j.progress.Bytes += f.Object.Size
				p.mu.Unlock()
				p.sched.Wake()
				return nil
			}
			changed := p.changedLocked()
			p.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	path.walked, j.walking = true, false
	if err != nil {
		path.err = err
		j.failLocked(path, err)
	}
	p.donePathLocked(j, path)
}

// failLocked counts what could not be brought of a path.
func (j *warmJob) failLocked(path *warmPath, err error) {
	path.failed++
	j.progress.Failed++
	if rights.Unreadable(err) {
		j.progress.Denied++
	}
}

// warm brings one file.
func (p *Prefetcher) warm(ctx context.Context, j *warmJob, f warmFile) {
	var fetched bool
	var err error
	if !f.staged {
		fetched, err = p.bring(ctx, j, f.obj)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f.of.left--
	if err != nil {
		j.failLocked(f.of, err)
		if f.path == f.of.path {
			f.of.err = err
		} else {
			p.resultLocked(j, WarmResult{Path: f.path, State: "failed", Error: err.Error(), Err: err, below: true})
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
			p.resultLocked(j, WarmResult{Path: f.path, State: "ready", Files: 1, Bytes: f.obj.Size, below: true})
		}
	}
	p.donePathLocked(j, f.of)
}

// bring fetches an object, unless it is there, and leaves it among those that stay
// by their use. A job does not bring more than there is room for: it would only
// displace what it has brought itself.
func (p *Prefetcher) bring(ctx context.Context, j *warmJob, o oss.Object) (fetched bool, err error) {
	cost := cache.Cost(o)
	p.mu.Lock()
	budget, charged := p.mu.book.Budget()
	if j.charged+charged+cost > budget {
		p.mu.Unlock()
		return false, fmt.Errorf("the cache has no room for it: %d bytes, of which %d are taken by this warm-up and by loaders", budget, j.charged+charged)
	}
	j.charged += cost
	p.mu.Unlock()
	there := o.Size == 0 || p.cache.Residency(o).Whole
	p.cache.Hold(o)
	within, done := j.life.Within(ctx)
	err = p.cache.Fetch(within, o)
	done()
	p.cache.Unhold(o, false)
	if err != nil {
		p.mu.Lock()
		j.charged -= cost
		p.mu.Unlock()
	}
	return !there && err == nil, err
}

// donePathLocked adds the result of a path when its last file has ended.
func (p *Prefetcher) donePathLocked(j *warmJob, path *warmPath) {
	if path.walked && path.left == 0 {
		j.open--
		r := WarmResult{Path: path.path, State: "ready", Files: path.files, Bytes: path.bytes}
		switch {
		case path.err != nil:
			r.State, r.Error, r.Err = "failed", path.err.Error(), path.err
		case path.failed > 0:
			r.State, r.Error = "partly", fmt.Sprintf("%d of %d files could not be brought", path.failed, path.failed+path.files)
		}
		p.resultLocked(j, r)
	}
	p.settleLocked()
}

func (p *Prefetcher) resultLocked(j *warmJob, r WarmResult) {
	j.seq++
	r.Seq = j.seq
	if r.Err != nil {
		r.Err = session.Brief(r.Err)
		r.Error = r.Err.Error()
	}
	j.resultBytes += r.size()
	j.results = append(j.results, r)
}
