package session

import (
	"strings"

	"github.com/pailfs/pailfs/prefetch/budget"
)

// Names are kept in two pieces, so that what many of them begin with is there once: the
// folder, which all names in it share, and what comes after its last slash.

// folder is what some names have before and with their last slash, or "". What they mean
// depends on who may read what is there: each user has folders of their own.
type folder struct {
	folderKey
	// sessions is how many hold names in it.
	sessions int
}

type folderKey struct {
	path string
	who  Who
	// user is who is charged; a guest may have the rights of another.
	user budget.User
}

// name is a path as the book keeps it, with who named it. Two are equal if they are the same
// of the same, as long as somebody holds it.
type name struct {
	in   *folder
	last string
}

// String returns the path.
func (n name) String() string {
	if n.in == nil {
		return n.last
	}
	return n.in.path + n.last
}

// cut returns the two pieces of a path.
func cut(path string) (in, last string) {
	i := strings.LastIndexByte(path, '/') + 1
	return path[:i], path[i:]
}

// folderSet is the folders in which names are held.
type folderSet map[folderKey]*folder

// find returns who holds a path in a stream, or nil.
func (all folderSet) find(st *stream, path string, seq int) *holder {
	if st == nil {
		return nil
	}
	in, last := cut(path)
	for _, who := range st.session.whos {
		if f := all[folderKey{in, who, st.session.key.User()}]; f != nil {
			if h := st.holders[use{name{f, last}, seq}]; h != nil {
				return h
			}
		}
	}
	return nil
}

// enter makes a name of which the stream's session will be a holder, and charges it.
// [Book.leave] must follow when it is none any more.
func (b *Book) enter(st *stream, path string) (name, error) {
	s := st.session
	in, last := cut(path)
	var f *folder
	var cost int64
	for {
		f = b.folders[folderKey{in, s.params.Who, s.key.User()}]
		cost = nameCost + int64(len(last))
		if f == nil || s.folders[f] == 0 {
			cost += folderCost + int64(len(in))
		}
		err := b.cfg.Ledger.Take(s.key.User(), budget.Names, cost)
		if err == nil {
			break
		}
		if !b.yield(s.key.User()) { // which may take the folder away
			return name{}, err
		}
	}
	s.names += cost
	if st.nameSize == 0 {
		st.nameSize = cost
	}
	st.nameSize += (cost - st.nameSize + averaged/2) / averaged
	// What was cut out of a request would keep the whole of it.
	if f == nil {
		f = &folder{folderKey: folderKey{strings.Clone(in), s.params.Who, s.key.User()}}
		b.folders[f.folderKey] = f
	}
	if s.folders[f]++; s.folders[f] == 1 {
		f.sessions++
	}
	return name{f, strings.Clone(last)}, nil
}

// averaged is over how many names the average of their costs goes.
const averaged = 16

// leave gives back what [Book.enter] took.
func (b *Book) leave(s *session, n name) {
	cost := nameCost + int64(len(n.last))
	if s.folders[n.in]--; s.folders[n.in] == 0 {
		delete(s.folders, n.in)
		cost += folderCost + int64(len(n.in.path))
		if n.in.sessions--; n.in.sessions == 0 {
			delete(b.folders, n.in.folderKey)
		}
	}
	s.names -= cost
	b.orphans.shrink(s, cost)
	b.cfg.Ledger.Give(s.key.User(), budget.Names, cost)
}
