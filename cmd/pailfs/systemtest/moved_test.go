package systemtest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// moved is a directory in which files and directories are made, renamed and removed, and
// what was acknowledged of it.
type moved struct {
	dir string
	// has is what each name below the bucket's root holds.
	has map[string]version
	// next is has as it would be if what was begun had been acknowledged, nil for none.
	next map[string]version
	// removed are names that must not be there, but where they are in has.
	removed map[string]bool
	done    int
}

func newMoved(dir string) *moved {
	return &moved{dir: dir, has: map[string]version{}, removed: map[string]bool{}}
}

// try does something that leaves the names as next says.
func (m *moved) try(next map[string]version, do func() error) error {
	m.next = next
	if err := do(); err != nil {
		return err
	}
	for name := range m.has {
		m.removed[name] = true
	}
	m.has, m.next = next, nil
	m.done++
	return nil
}

// once makes a file, gives it the name of another, and may remove that, or makes a directory
// with files and renames it.
func (m *moved) once(at string, k int, rng *rand.Rand) error {
	in := func(name string) string { return filepath.Join(at, name) }
	if k%5 == 0 {
		return m.directory(in, k)
	}
	made, named := path.Join(m.dir, fmt.Sprint("made-", k)), path.Join(m.dir, fmt.Sprint("named-", k%3))
	if err := m.create(in, made, k, 1+rng.Int64N(150_000)); err != nil {
		return err
	}
	if err := m.rename(in, made, named); err != nil {
		return err
	}
	if rng.IntN(3) > 0 {
		return nil
	}
	next := maps.Clone(m.has)
	delete(next, named)
	return m.try(next, func() error { return os.Remove(in(named)) })
}

// directory makes a directory with two files and renames it.
func (m *moved) directory(in func(string) string, k int) error {
	from, to := path.Join(m.dir, fmt.Sprint("from-", k)), path.Join(m.dir, fmt.Sprint("to-", k))
	if err := os.Mkdir(in(from), 0o755); err != nil {
		return err
	}
	for i := range 2 {
		if err := m.create(in, path.Join(from, fmt.Sprint("file", i)), 10*k+i, 50_000); err != nil {
			return err
		}
	}
	return m.rename(in, from, to)
}

// create writes a new file.
func (m *moved) create(in func(string) string, name string, number int, size int64) error {
	v := version{Key: m.dir, Number: number, Size: size}
	next := maps.Clone(m.has)
	next[name] = v
	return m.try(next, func() error { return writeDurably(in(name), v.content(), false) })
}

// rename renames a file or a directory.
func (m *moved) rename(in func(string) string, from, to string) error {
	next := make(map[string]version, len(m.has))
	for name, v := range m.has {
		if name == from || strings.HasPrefix(name, from+"/") {
			continue
		}
		if name != to {
			next[name] = v
		}
	}
	for name, v := range m.has {
		if name == from || strings.HasPrefix(name, from+"/") {
			next[to+strings.TrimPrefix(name, from)] = v
		}
	}
	return m.try(next, func() error { return os.Rename(in(from), in(to)) })
}

// check fails unless the bucket has what was acknowledged, or all of what was begun after it.
// A file that was being written may have a part of its content.
func (m *moved) check(w *world) error {
	err := m.is(w, m.has)
	if err == nil || m.next == nil {
		return err
	}
	after := m.is(w, m.next)
	if after == nil {
		return nil
	}
	return fmt.Errorf("%w; after what was begun then: %w", err, after)
}

// is fails unless the bucket has below the directory what a state of it says.
func (m *moved) is(w *world, state map[string]version) error {
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(state)) {
		v := state[name]
		content, err := w.object(name)
		_, acknowledged := m.has[name]
		switch {
		case err != nil && !acknowledged && len(state) > len(m.has):
			// It was being made.
		case err != nil:
			wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
		case !bytes.Equal(content, v.content()) && (acknowledged || len(state) <= len(m.has) || !bytes.HasPrefix(v.content(), content)):
			wrong = append(wrong, fmt.Errorf("%s: %d bytes that are not the %d that were written: %s", name, len(content), v.Size, v.explain(content, 0, nil)))
		}
	}
	for _, name := range w.Keys(m.dir + "/") {
		if _, ok := state[name]; !ok && !strings.HasSuffix(name, "/") && (m.removed[name] || m.had(name)) {
			wrong = append(wrong, fmt.Errorf("%s is there, and was renamed or removed", name))
		}
	}
	return errors.Join(wrong...)
}

// had reports whether the name was acknowledged.
func (m *moved) had(name string) bool {
	_, ok := m.has[name]
	return ok
}
