package turns

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pailfs/pailfs/prefetch/budget"
)

// Turns lets users work one after the other, a few of them at once: whoever asks for much
// waits for its own, and others for no more than one step of each who came before.
type Turns struct {
	mu struct {
		sync.Mutex
		// free is how many more may work now.
		free int
		// users are those who wait, in the order in which they are served, and waiting what
		// waits of each. Each channel is closed when the turn has come.
		users   []budget.User
		waiting map[budget.User][]chan struct{}
	}
}

// New returns turns of which so many may be taken at once.
func New(atOnce int) *Turns {
	t := &Turns{}
	t.mu.free = atOnce
	t.mu.waiting = make(map[budget.User][]chan struct{})
	return t
}

// take waits for a turn of the user, which must be given back, or until ctx ends.
func (t *Turns) take(ctx context.Context, u budget.User) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.mu.Lock()
	if t.mu.free > 0 {
		t.mu.free--
		t.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	if len(t.mu.waiting[u]) == 0 {
		t.mu.users = append(t.mu.users, u)
	}
	t.mu.waiting[u] = append(t.mu.waiting[u], mine)
	t.mu.Unlock()
	select {
	case <-mine:
	case <-ctx.Done():
		t.leave(u, mine)
		return ctx.Err()
	}
	return nil
}

// leave takes out of the queue who will not wait any longer.
func (t *Turns) leave(u budget.User, mine chan struct{}) {
	t.mu.Lock()
	at := slices.Index(t.mu.waiting[u], mine)
	if at >= 0 {
		t.mu.waiting[u] = slices.Delete(t.mu.waiting[u], at, at+1)
		if len(t.mu.waiting[u]) == 0 {
			delete(t.mu.waiting, u)
			t.mu.users = slices.DeleteFunc(t.mu.users, func(w budget.User) bool { return w == u })
		}
	}
	t.mu.Unlock()
	if at < 0 {
		t.give() // its turn had just come
	}
}

// give gives a turn back, to the user who has waited longest since it had one.
func (t *Turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.mu.users) == 0 {
		t.mu.free++
		return
	}
	u := t.mu.users[0]
	t.mu.users = t.mu.users[1:]
	queue := t.mu.waiting[u]
	close(queue[0])
	if len(queue) == 1 {
		delete(t.mu.waiting, u)
		return
	}
	queue[0] = nil
	t.mu.waiting[u] = queue[1:]
	t.mu.users = append(t.mu.users, u)
}

// alone reports whether nobody waits.
func (t *Turns) alone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.mu.users) == 0
}

// Of returns the turn of a user, which must be taken.
func (t *Turns) Of(u budget.User) *Turn { return &Turn{of: t, user: u} }

// Free returns how many more may work now.
func (t *Turns) Free() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.free
}

// Turn is the turn of a user who works for longer than one. It is used by one goroutine.
type Turn struct {
	of   *Turns
	user budget.User
	// taken says that it has to be given back, began when it came.
	taken bool
	began time.Time
}

// Take waits for the turn.
func (t *Turn) Take(ctx context.Context) error {
	err := t.of.take(ctx, t.user)
	t.taken, t.began = err == nil, time.Now()
	return err
}

// Pause lets others have their turn, if any wait and this one has lasted for step.
func (t *Turn) Pause(ctx context.Context, step time.Duration) error {
	if !t.taken || time.Since(t.began) < step || t.of.alone() {
		return ctx.Err()
	}
	t.of.give()
	return t.Take(ctx)
}

// Lend calls ask, which may wait for something outside. If that takes longer than step, others
// have the turn meanwhile, and another one is taken afterwards.
func (t *Turn) Lend(ctx context.Context, step time.Duration, ask func()) error {
	if !t.taken {
		return ctx.Err()
	}
	lent := time.AfterFunc(step, t.of.give)
	ask()
	if lent.Stop() {
		return nil
	}
	return t.Take(ctx)
}

// End gives the turn back.
func (t *Turn) End() {
	if t.taken {
		t.of.give()
	}
}
