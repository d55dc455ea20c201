package session

import (
	"fmt"
)

// Check returns an error if the book contradicts itself. Tests call it after
// every step.
func (b *Book) Check() error {
	var charged []*Entry
	perSession := map[*session]int64{}
	seen := map[*Entry]bool{}
	count := func(e *Entry) {
		if !seen[e] {
			seen[e] = true
			if e.counted {
				charged = append(charged, e)
			}
			perSession[e.charger] += e.charge
		}
	}
	for path, e := range b.entries {
		if e.name != path || len(e.holders) == 0 {
			return fmt.Errorf("entry %q has %d holders", path, len(e.holders))
		}
		want := int64(0)
		if e.state == Fetching || e.state == Ready {
			want = e.cost
		}
		if e.charge != want || e.counted != (e.state == Fetching || e.state == Ready) {
			return fmt.Errorf("entry %q is %s and charged %d of %d", path, e.state, e.charge, e.cost)
		}
		for _, h := range e.holders {
			if h.gone || h.stream.holders[h.use] != h {
				return fmt.Errorf("entry %q has a holder that is gone", path)
			}
		}
		if b.sessions[e.charger.id] != e.charger {
			return fmt.Errorf("entry %q is charged to a session that has ended", path)
		}
		count(e)
	}
	for _, e := range b.gone {
		count(e)
	}
	if err := checkTenants(b, charged); err != nil {
		return err
	}
	for _, s := range sorted(b.sessions) {
		for _, st := range s.sorted() {
			outstanding := 0
			for _, h := range st.holders {
				if !h.active && h.entry.state != Failed {
					outstanding++
				}
				if b.entries[h.use.name] != h.entry {
					return fmt.Errorf("holder of %q holds another entry", h.use.name)
				}
			}
			if outstanding != st.outstanding {
				return fmt.Errorf("stream %d has %d outstanding, the book says %d", st.index, outstanding, st.outstanding)
			}
		}
		if s.charged < perSession[s] {
			return fmt.Errorf("session %s is charged %d bytes, its entries %d", s.id, s.charged, perSession[s])
		}
	}
	return nil
}

// checkTenants returns an error if the tenants are charged less than their entries cost, some
// of which may be gone and on their way out.
func checkTenants(b *Book, charged []*Entry) error {
	type has struct {
		cost    int64
		objects map[version]int32
		waiting int
	}
	found := make(map[*tenant]*has)
	for _, t := range b.shares.tenants {
		found[t] = &has{objects: make(map[version]int32)}
	}
	for _, e := range charged {
		for _, o := range e.Objects {
			h, v := found[e.tenant], b.shares.versionOf(o)
			if h.objects[v]++; h.objects[v] == 1 {
				h.cost += b.cfg.Cost(o)
			}
		}
	}
	for _, e := range b.entries {
		if e.state == Waiting {
			found[e.tenant].waiting++
		}
	}
	var sum, others int64
	for t, h := range found {
		for v, n := range h.objects {
			if n > t.objects[v] {
				return fmt.Errorf("user %d has %d charged entries of an object, the book says %d", t.user.UID, n, t.objects[v])
			}
		}
		if h.cost > t.charged || h.waiting != t.waiting {
			return fmt.Errorf("user %d is charged %d and has %d entries waiting, the book says %d and %d", t.user.UID, h.cost, h.waiting, t.charged, t.waiting)
		}
		sum += t.charged
		if !t.privileged {
			others += t.charged
		}
	}
	if sum != b.shares.charged || others != b.shares.others {
		return fmt.Errorf("all users are charged %d, the others %d of it, the book says %d and %d", sum, others, b.shares.charged, b.shares.others)
	}
	return nil
}
