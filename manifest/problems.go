package manifest

import (
	"hash/maphash"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"
)

// maxProblems is how many different keys are counted. Each costs some 16 bytes.
const maxProblems = 1 << 16

// maxExamples is how many of them are remembered by name.
const maxExamples = 10

// problems counts keys that cannot be shown under their own name, each once.
type problems struct {
	seed maphash.Seed
	mu   struct {
		sync.Mutex
		seen     map[uint64]struct{}
		examples []Problem
	}
}

func newProblems() *problems {
	p := &problems{seed: maphash.MakeSeed()}
	p.mu.seen = make(map[uint64]struct{})
	return p
}

// add counts key. Beyond maxProblems the count stands still.
func (p *problems) add(key, reason string) {
	h := maphash.String(p.seed, key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, seen := p.mu.seen[h]; seen || len(p.mu.seen) == maxProblems {
		return
	}
	p.mu.seen[h] = struct{}{}
	if len(p.mu.examples) < maxExamples {
		if !utf8.ValidString(key) {
			key = strconv.Quote(key)
		}
		p.mu.examples = append(p.mu.examples, Problem{Key: key, Reason: reason})
	}
}

// has reports whether key was counted.
func (p *problems) has(key string) bool {
	h := maphash.String(p.seed, key)
	p.mu.Lock()
	defer p.mu.Unlock()
	_, seen := p.mu.seen[h]
	return seen
}

func (p *problems) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.seen)
}

func (p *problems) report() Problems {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Problems{Count: int64(len(p.mu.seen)), Examples: slices.Clone(p.mu.examples)}
}

// reasonFor says what became of an item of a directory whose name is not its own
// component: name is how it is shown, if it is.
func reasonFor(item, name string, keyLength int) string {
	component := item
	if isDirectory(item) {
		component = item[:len(item)-1]
	}
	switch {
	case keyLength > maxKey:
		return "rule 5: the key is longer than 1023 bytes; not shown"
	case len(name) > maxName && isDirectory(item):
		return "rule 4: the name is longer than 255 bytes; not shown, nor what is under it"
	case len(name) > maxName:
		return "rule 4: the name is longer than 255 bytes; not shown"
	case component == "":
		return "rule 2: an empty name between slashes; shown as " + strconv.Quote(name)
	case component == "." || component == "..":
		return "rule 2: this name means a directory to Linux; shown as " + strconv.Quote(name)
	case plain(component):
		return "rule 3: an object beside a directory of the same name; shown as " + strconv.Quote(name)
	default:
		return "rule 2: NUL or a reserved ending in the name; shown as " + strconv.Quote(name)
	}
}
