package lateopens

import (
	"cmp"
	"container/list"
	"context"
	"sync"
	"time"
)

// Bounds of what is kept, which costs a descriptor, and the disk that its bytes take: Age is for
// how long a thing is kept if nothing else is said, Most how many there are, of at most MostBytes
// together. The newest is kept however large it is.
const (
	Age       = 5 * time.Second
	Most      = 512
	MostBytes = 4 << 30
)

// Keeper keeps things by keys. The zero value will do, but Run must be running for
// things to get old.
type Keeper[K comparable] struct {
	// Age is for how long things are kept at most; 0 means [Age]. It must not be changed
	// while Run is running.
	Age time.Duration
	mu  struct {
		sync.Mutex
		order list.List // of *kept[K], the oldest first
		at    map[K]*list.Element
		bytes int64
	}
}

type kept[K comparable] struct {
	key     K
	bytes   int64
	since   time.Time
	release func()
}

// Keep keeps what key had, which occupies bytes, until [Keeper.Drop] or until it is too old
// or too much: then release is called, once. What was kept for key before is released now.
func (k *Keeper[K]) Keep(key K, bytes int64, release func()) {
	k.mu.Lock()
	if k.mu.at == nil {
		k.mu.at = make(map[K]*list.Element)
	}
	var out []func()
	if e := k.mu.at[key]; e != nil {
		out = append(out, k.takeLocked(e))
	}
	k.mu.at[key] = k.mu.order.PushBack(&kept[K]{key, bytes, time.Now(), release})
	k.mu.bytes += bytes
	for k.mu.order.Len() > Most || k.mu.bytes > MostBytes && k.mu.order.Len() > 1 {
		out = append(out, k.takeLocked(k.mu.order.Front()))
	}
	k.mu.Unlock()
	call(out)
}

// Drop releases what was kept for key, if anything is.
func (k *Keeper[K]) Drop(key K) {
	k.mu.Lock()
	var out []func()
	if e := k.mu.at[key]; e != nil {
		out = append(out, k.takeLocked(e))
	}
	k.mu.Unlock()
	call(out)
}

// Clear releases everything.
func (k *Keeper[K]) Clear() { call(k.take(func(time.Time) bool { return true })) }

// Len returns how many things are kept.
func (k *Keeper[K]) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.order.Len()
}

// Run releases what is too old until ctx ends, and then everything. What takes long to
// release, since a request to the store is under way for it, holds up nothing else.
func (k *Keeper[K]) Run(ctx context.Context) {
	var releasing sync.WaitGroup
	defer releasing.Wait()
	defer k.Clear()
	age := cmp.Or(k.Age, Age)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, release := range k.take(func(since time.Time) bool { return now.Sub(since) >= age }) {
				releasing.Go(release)
			}
		}
	}
}

// take takes out the oldest as long as they are old, and returns what releases them.
func (k *Keeper[K]) take(old func(since time.Time) bool) (out []func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for e := k.mu.order.Front(); e != nil && old(e.Value.(*kept[K]).since); e = k.mu.order.Front() {
		out = append(out, k.takeLocked(e))
	}
	return out
}

// takeLocked takes e out and returns what releases it. k.mu is held, and must not be when
// that is called.
func (k *Keeper[K]) takeLocked(e *list.Element) (release func()) {
	v := k.mu.order.Remove(e).(*kept[K])
	delete(k.mu.at, v.key)
	k.mu.bytes -= v.bytes
	return v.release
}

func call(all []func()) {
	for _, do := range all {
		do()
	}
}
