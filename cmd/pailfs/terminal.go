package main

import (
	"fmt"
	"os"

	"golang.org/x/term"
)

// atTerminal reports whether a user at a terminal sees what this program says.
func (p program) atTerminal() bool {
	f, ok := p.stderr.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// progress tells a user at a terminal what is going on; a script is told nothing.
func (p program) progress(text string) {
	if p.atTerminal() {
		fmt.Fprintf(p.stderr, "pailfs: %s\n", text)
	}
}
