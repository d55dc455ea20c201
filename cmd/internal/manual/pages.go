package manual

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"
)

// Page is a page of section 1.
type Page struct {
	// File is its name, as in pailfs-mount.1.
	File string
	// Text is what man formats.
	Text string
}

// elsewhere is the tag of a command that another program answers.
const elsewhere = "elsewhere"

// Overview returns the page of the program itself, which lists its commands.
func Overview(app *kong.Application, version string) Page {
	w := newPage(app.Name, app.Name+" "+version)
	w.heading("NAME")
	first, rest, _ := strings.Cut(app.Help, "\n\n")
	w.line(app.Name + " - " + lead(first))
	w.heading("SYNOPSIS")
	w.line(app.Name + " COMMAND [ARGUMENT...]")
	if rest != "" {
		w.heading("DESCRIPTION")
		w.text(rest)
	}
	w.heading("COMMANDS")
	var names []string
	for _, c := range commands(app.Node) {
		w.term(app.Name+"-"+c.Name+"(1)", c.Help)
		names = append(names, app.Name+"-"+c.Name)
	}
	w.heading("OPTIONS")
	w.flags(app.Node)
	w.see(names)
	return Page{app.Name + ".1", w.String()}
}

// Commands returns a page for each command of the program that it answers itself. The commands
// below a command are on its page.
func Commands(app *kong.Application, version string) []Page {
	var pages []Page
	for _, c := range commands(app.Node) {
		if c.Tag.Has(elsewhere) {
			continue
		}
		name := app.Name + "-" + c.Name
		w := newPage(name, app.Name+" "+version)
		w.heading("NAME")
		w.line(name + " - " + lead(c.Help))
		w.heading("SYNOPSIS")
		leaves := leavesOf(c)
		for i, leaf := range leaves {
			if i > 0 {
				w.raw(".br")
			}
			w.line(app.Name + " " + synopsis(leaf))
		}
		if c.Detail != "" {
			w.heading("DESCRIPTION")
			w.text(c.Detail)
		}
		for _, leaf := range leaves {
			if leaf == c {
				w.heading("OPTIONS")
			} else {
				w.heading(strings.ToUpper(leaf.Path()))
				w.text(leaf.Help)
				w.text(leaf.Detail)
			}
			w.flags(leaf)
		}
		w.see([]string{app.Name})
		pages = append(pages, Page{name + ".1", w.String()})
	}
	return pages
}

// commands returns those below a node that are shown.
func commands(n *kong.Node) []*kong.Node {
	var shown []*kong.Node
	for _, c := range n.Children {
		if !c.Hidden && c.Type == kong.CommandNode {
			shown = append(shown, c)
		}
	}
	return shown
}

// leavesOf returns the commands at which a line may end: the node itself if none are below it.
func leavesOf(n *kong.Node) []*kong.Node {
	below := commands(n)
	if len(below) == 0 {
		return []*kong.Node{n}
	}
	var leaves []*kong.Node
	for _, c := range below {
		leaves = append(leaves, leavesOf(c)...)
	}
	return leaves
}

// lead returns a help text as NAME has it: no capital at the start of a common word, no full stop.
func lead(help string) string {
	help = strings.TrimSuffix(help, ".")
	if len(help) > 1 && help[1] >= 'a' && help[1] <= 'z' {
		help = strings.ToLower(help[:1]) + help[1:]
	}
	return help
}

// synopsis returns how a command is called.
func synopsis(n *kong.Node) string {
	parts := []string{n.Path(), "[OPTION...]"}
	for _, p := range n.Positional {
		parts = append(parts, p.Summary())
	}
	return strings.Join(parts, " ")
}

// page collects the lines of a page.
type page struct{ strings.Builder }

func newPage(name, version string) *page {
	w := new(page)
	// No date: the same program gives the same bytes whenever it is asked.
	w.raw(fmt.Sprintf(`.TH %s 1 "" "%s" "User Commands"`, strings.ToUpper(name), escape(version)))
	return w
}

// raw writes a line as it is.
func (w *page) raw(line string) { w.WriteString(line + "\n") }

// line writes text of one line.
func (w *page) line(text string) { w.raw(escape(text)) }

func (w *page) heading(text string) { w.raw(`.SH "` + escape(text) + `"`) }

// term writes an item and what it means.
func (w *page) term(name, meaning string) {
	w.raw(".TP")
	w.raw(`\fB` + escape(name) + `\fR`)
	w.line(meaning)
}

// text writes paragraphs. A line that begins with a tab is one of an example and stays a line.
func (w *page) text(text string) {
	example := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		code := strings.HasPrefix(line, "\t")
		switch {
		case code && !example:
			w.raw(".PP\n.nf\n.RS 4")
		case !code && example:
			w.raw(".RE\n.fi\n.PP")
		}
		example = code
		if line == "" {
			w.raw(".PP")
			continue
		}
		w.line(strings.TrimPrefix(line, "\t"))
	}
	if example {
		w.raw(".RE\n.fi")
	}
}

// flags writes the arguments and flags of a command, those of what is above it included.
func (w *page) flags(n *kong.Node) {
	for _, p := range n.Positional {
		w.term(p.Summary(), p.Help)
	}
	for _, f := range flagsOf(n) {
		name := "--" + f.Name
		if f.Short != 0 {
			name = "-" + string(f.Short) + ", " + name
		}
		if !f.IsBool() {
			name += "=" + f.FormatPlaceHolder()
		}
		w.term(name, meaning(f))
	}
}

// meaning returns the whole help of a flag, with its values and default.
func meaning(f *kong.Flag) string {
	text := f.Help
	if values := valuesOf(f); len(values) > 0 {
		text += " One of " + strings.Join(values, ", ") + "."
	}
	if f.HasDefault && f.Default != "" && f.Default != "false" {
		text += " The default is " + f.Default + "."
	}
	return text
}

// flagsOf returns the flags that a command takes and shows, those of what is above it first.
func flagsOf(n *kong.Node) []*kong.Flag {
	var shown []*kong.Flag
	for _, group := range n.AllFlags(true) {
		shown = append(shown, group...)
	}
	return shown
}

// valuesOf returns the values of which a flag takes one, none if it takes others.
func valuesOf(f *kong.Flag) []string {
	list := f.Tag.Get("oneof")
	if list == "" {
		list = f.Enum
	}
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

func (w *page) see(names []string) {
	w.heading("SEE ALSO")
	for i, name := range names {
		names[i] = name + "(1)"
	}
	w.line(strings.Join(names, ", "))
}

// escape returns text that roff prints as it is.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

// Write writes pages into a directory, which must exist.
func Write(dir string, pages []Page) error {
	for _, p := range pages {
		if err := os.WriteFile(filepath.Join(dir, p.File), []byte(p.Text), 0o644); err != nil {
			return fmt.Errorf("write manual page: %w", err)
		}
	}
	return nil
}
