package warm

import (
	"context"
	"time"

	"github.com/pailfs/pailfs/prefetch/budget"
	"github.com/pailfs/pailfs/prefetch/session"
)

// warmSign is how often at least a job is asked after, so that it lives: less than jobIdle.
const warmSign = time.Minute

// Warm brings paths into the cache with the rights of who, calls told with the result of each
// of them, and of what failed below it, and returns when all is done, or ctx ends, which is an
// error. It fails with a [budget.Exceeded] if the user has too many jobs.
func (s *Jobs) Warm(ctx context.Context, who session.Who, paths []string, told func(Result)) (progress Progress, err error) {
	job, err := s.Open(budget.User{UID: who.UID}, false)
	if err != nil {
		return progress, err
	}
	defer func() { _ = s.Close(job, who.UID) }() // it may have gone with the daemon
	ctx, stop := context.WithCancelCause(ctx)
	added := make(chan struct{})
	defer func() {
		stop(nil)
		<-added
	}()
	// A job that has enough to do takes no more before its results are read.
	go func() {
		defer close(added)
		if err := s.addAll(ctx, job, who, paths); err != nil {
			stop(err)
		}
	}()
	for !progress.Finished {
		if ctx.Err() != nil {
			return progress, context.Cause(ctx)
		}
		asked, cancel := context.WithTimeout(ctx, warmSign)
		progress, err = s.Progress(asked, job, who, progress.Next)
		cancel()
		if err != nil {
			return progress, err
		}
		for _, r := range progress.Results {
			told(r)
		}
	}
	return progress, nil
}

// addAll gives a job all of its paths.
func (s *Jobs) addAll(ctx context.Context, job string, who session.Who, paths []string) error {
	for left := paths; ; {
		n, err := s.Add(ctx, job, who, left, true)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if left = left[n:]; len(left) == 0 {
			return nil
		}
	}
}
