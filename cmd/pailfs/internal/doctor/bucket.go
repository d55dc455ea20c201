package doctor

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/reach"
	"github.com/pailfs/pailfs/oss"
)

// bucket gathers the facts of a bucket.
type bucket struct {
	at       config.Location
	settings *config.Loaded
	// write says that an object may be written, below the prefix, and removed.
	write bool
}

// checks asks the object store, and returns what is to be judged. What cannot be asked after a
// failure is left out.
func (b bucket) checks(ctx context.Context, p command.Program) []check {
	address := b.settings.Endpoint
	reached, c := hello(ctx, address)
	checks := []check{region{address, b.settings.Region}, reached}
	if reached.err != nil {
		return checks
	}
	checks = append(checks, c)
	conn, err := reach.Connect(p, b.settings)
	checks = append(checks, credentials{err})
	if err != nil {
		return checks
	}
	defer func() { _ = conn.Close() }() // nothing is under way
	client, err := conn.Client(b.at.Bucket)
	if err != nil {
		return append(checks, right{name: "list", err: err})
	}
	first, err := client.Preflight(ctx, b.at.Prefix)
	list := right{name: "list", err: err}
	if len(first) > 0 {
		list.on = b.at.String()
	}
	if checks = append(checks, list); err != nil {
		return checks
	}
	store := client.As(oss.Demand)
	if len(first) > 0 {
		checks = append(checks, tryGet(ctx, store, first))
	}
	if b.write {
		checks = append(checks, tryPut(ctx, store, b.at.Prefix))
	}
	before := conn.Throttled()
	quick := hurry(ctx, client, b.at.Prefix)
	quick.times = conn.Throttled() - before
	return append(checks, quick)
}

// helloTime is how long an endpoint may take to answer.
const helloTime = 10 * time.Second

// hello makes one request without keys: whatever is answered, somebody is there and tells the time.
func hello(ctx context.Context, address string) (endpoint, clock) {
	url := address
	if !strings.Contains(url, "://") {
		url = "https://" + url
	}
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	e := endpoint{address: address}
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, url, http.NoBody)
	if err != nil {
		e.err = err
		return e, clock{}
	}
	transport := &http.Transport{DialContext: new(net.Dialer).DialContext, Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	begun := time.Now()
	answer, err := transport.RoundTrip(request)
	e.took = time.Since(begun)
	if err != nil {
		e.err = err
		return e, clock{}
	}
	_ = answer.Body.Close() // it has none
	theirs, err := http.ParseTime(answer.Header.Get("Date"))
	return e, clock{ahead: begun.Add(e.took / 2).Sub(theirs), told: err == nil}
}

// tryGet reads a byte of an object that has one.
func tryGet(ctx context.Context, store oss.Bucket, first []oss.ListedObject) right {
	r := right{name: "get"}
	for _, o := range first {
		if o.Size == 0 {
			continue
		}
		_, r.err = store.Head(ctx, o.Key)
		if r.err == nil {
			r.on = o.Key
		}
		return r
	}
	return r
}

// tryPut writes an object below the prefix, and removes it.
func tryPut(ctx context.Context, store oss.Bucket, prefix string) right {
	key := prefix + ".pailfs-doctor-" + rand.Text()
	r := right{name: "put", on: "an object was written and removed: " + key}
	if _, r.err = store.Put(ctx, key, strings.NewReader("pailfs doctor --write-test\n"), oss.PutOptions{}); r.err != nil {
		return r
	}
	// Also who interrupts leaves nothing behind.
	removing, cancel := context.WithTimeout(context.WithoutCancel(ctx), helloTime)
	defer cancel()
	r.err = store.Delete(removing, key)
	return r
}

// hurried is how many requests are made at once: fewer than a mount makes.
const hurried = 16

// hurry makes some cheap requests at once.
func hurry(ctx context.Context, client *oss.Client, prefix string) throttling {
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	store := client.As(oss.Demand)
	failed := make([]error, hurried)
	var requests sync.WaitGroup
	for i := range failed {
		requests.Go(func() {
			_, failed[i] = store.List(ctx, oss.ListRequest{Prefix: prefix, MaxKeys: 1})
		})
	}
	requests.Wait()
	t := throttling{requests: hurried}
	for _, err := range failed {
		if err != nil {
			t.failed = err
		}
	}
	return t
}
