package mounting

import (
	"errors"
	"fmt"
	"slices"
)

// parts are what was opened, in order. What depends on another part is opened after it, and so
// closed before it.
type parts struct {
	opened []part
}

// part is something that was opened and must be closed.
type part struct {
	name  string
	close func() error
}

// opens remembers that a part must be closed.
func (p *parts) opens(name string, closer func() error) {
	p.opened = append(p.opened, part{name: name, close: closer})
}

// close closes what is open, last opened first, and returns every failure.
func (p *parts) close() error {
	var failures []error
	for _, one := range slices.Backward(p.opened) {
		if err := one.close(); err != nil {
			failures = append(failures, fmt.Errorf("close %s: %w", one.name, err))
		}
	}
	p.opened = nil
	return errors.Join(failures...)
}
