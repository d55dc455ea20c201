package main

import (
	"fmt"
	"os"

	"golang.org/x/term"
)

// progress tells a user at a terminal what is going on; a script is told nothing.
func (p program) progress(text string) {
	if f, ok := p.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprintf(p.stderr, "pailfs: %s\n", text)
	}
}
