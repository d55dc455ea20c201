package ossemu

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu/store"
)

// armedFault is a fault with the state of its turn.
type armedFault struct {
	Fault
	op  operation
	all bool

	mu struct {
		sync.Mutex
		rng     *rand.Rand
		matched int
		fired   int
		// past are the listings of FaultStaleList by bucket.
		past map[string]pastListing
	}
}

// pastListing is a listing with the instant that it is of.
type pastListing struct {
	store.Listing
	at time.Time
}

// faultSet is the faults in force.
type faultSet struct {
	armed atomic.Pointer[[]*armedFault]
	// injected counts, by kind.
	injected sync.Map
}

// SetFaults replaces the faults. A request that has begun keeps its own.
func (s *Server) SetFaults(faults []Fault) error {
	armed := make([]*armedFault, len(faults))
	for i, f := range faults {
		if err := f.validate(); err != nil {
			return fmt.Errorf("fault %d: %w", i, err)
		}
		a := &armedFault{Fault: f}
		a.op, _ = operationByName(f.Operation)
		a.all = f.Operation == "" || f.Operation == "*"
		// The same list of faults meets the same requests in the same way.
		a.mu.rng = rand.New(rand.NewPCG(1, uint64(i)))
		if f.Kind == FaultStaleList {
			a.mu.past = make(map[string]pastListing)
			if err := a.freezeAll(s.store); err != nil {
				return fmt.Errorf("fault %d: %w", i, err)
			}
		}
		armed[i] = a
	}
	s.faults.armed.Store(&armed)
	return nil
}

// Faults returns the faults in force.
func (s *Server) Faults() []Fault {
	var faults []Fault
	if armed := s.faults.armed.Load(); armed != nil {
		for _, a := range *armed {
			faults = append(faults, a.Fault)
		}
	}
	return faults
}

// pick returns the fault that the request suffers, nil for none.
func (s *faultSet) pick(q *request) *armedFault {
	armed := s.armed.Load()
	if armed == nil {
		return nil
	}
	key := q.key
	if key == "" {
		key = q.query.get("prefix")
	}
	for _, a := range *armed {
		if a.Kind != FaultSlowAccept && a.matches(q.op, key) && a.turn() {
			s.count(a.Kind)
			if a.Kind == FaultStaleList {
				q.stale = a
			}
			return a
		}
	}
	return nil
}

// slowAccept returns how long a new connection is left unserved.
func (s *faultSet) slowAccept() time.Duration {
	armed := s.armed.Load()
	if armed == nil {
		return 0
	}
	for _, a := range *armed {
		if a.Kind == FaultSlowAccept && a.turn() {
			s.count(a.Kind)
			return a.Delay
		}
	}
	return 0
}

func (s *faultSet) count(k FaultKind) {
	n, _ := s.injected.LoadOrStore(k, new(atomic.Int64))
	n.(*atomic.Int64).Add(1) //nolint:forcetypeassert // only this function stores
}

func (a *armedFault) matches(op operation, key string) bool {
	if a.Kind == FaultStaleList && op != opListObjects && op != opListObjectsV2 {
		return false
	}
	return (a.all || a.op == op) && strings.HasPrefix(key, a.KeyPrefix) && strings.Contains(key, a.KeyContains)
}

// turn says whether it is the turn of a request that matches.
func (a *armedFault) turn() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.matched++
	switch {
	case a.mu.matched <= a.Skip:
		return false
	case a.Count > 0 && a.mu.fired >= a.Count:
		return false
	case a.Every > 1 && (a.mu.matched-a.Skip)%a.Every != 0:
		return false
	case a.Probability > 0 && a.mu.rng.Float64() >= a.Probability:
		return false
	}
	a.mu.fired++
	return true
}

// failure is the refusal of a fault that is one.
func (a *armedFault) failure() *failure {
	f, known := errorByCode(a.Code)
	if !known {
		f = &failure{status: a.Status, code: a.Code, message: "Injected by a fault."}
	}
	if a.Status == 0 || a.Status == f.status {
		return f
	}
	c := *f
	c.status = a.Status
	return &c
}

func (a *armedFault) freezeAll(st *store.Store) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	buckets, _ := st.Buckets("", "", 1<<31)
	for _, b := range buckets {
		if err := a.freeze(st, b.Name); err != nil {
			return err
		}
	}
	return nil
}

// freeze remembers the names of a bucket. The caller holds mu.
func (a *armedFault) freeze(st *store.Store, bucket string) error {
	l, err := st.Freeze(bucket)
	if err == nil {
		a.mu.past[bucket] = pastListing{l, time.Now()}
	}
	return err
}

// list lists a bucket as it was. A bucket that is younger than the fault is
// remembered from its first listing on.
func (a *armedFault) list(st *store.Store, bucket string, query store.ListQuery) (store.ListPage, error) {
	a.mu.Lock()
	past, ok := a.mu.past[bucket]
	if !ok || (a.Delay > 0 && time.Since(past.at) > a.Delay) {
		if err := a.freeze(st, bucket); err != nil {
			a.mu.Unlock()
			return store.ListPage{}, err
		}
		past = a.mu.past[bucket]
	}
	a.mu.Unlock()
	return past.List(query), nil
}
