package manual

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Shells are those that [Completion] writes for.
func Shells() []string { return []string{"bash", "zsh", "fish"} }

// Completion returns the script that completes the program's commands, flags and the values of
// flags in a shell, which is one of [Shells]. The script asks nothing of the program. It is empty
// for another shell.
func Completion(app *kong.Application, shell string) string {
	places := placesOf(app.Node, nil)
	switch shell {
	case "bash":
		return bash(app.Name, places)
	case "zsh":
		return zsh(app.Name, places)
	case "fish":
		return fish(app.Name, places)
	}
	return ""
}

// place is where a command line may stand: a path of commands and what may follow.
type place struct {
	path  string // "" for the program itself, "staged ls" for a command below a command
	words []word // commands
	flags []*kong.Flag
}

// word is one that may follow, and what it means.
type word struct{ name, meaning string }

// placesOf returns the place of a node and of all below it.
func placesOf(n *kong.Node, above []string) []place {
	p := place{path: strings.Join(above, " "), flags: flagsOf(n)}
	var below []place
	for _, c := range commands(n) {
		p.words = append(p.words, word{c.Name, lead(c.Help)})
		below = append(below, placesOf(c, append(slices.Clone(above), c.Name))...)
	}
	return append([]place{p}, below...)
}

// takesPath reports whether a flag's value is a path of this machine.
func takesPath(f *kong.Flag) bool {
	return slices.Contains([]string{"PATH", "FILE", "DIR", "LIST"}, f.PlaceHolder)
}

// summary returns the first sentence of what a flag means.
func summary(f *kong.Flag) string {
	text, _, _ := strings.Cut(f.Help, ". ")
	return lead(text)
}

// quote returns text as one word of a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// walk is the part that bash and zsh share: it follows the commands among the words, which is an
// expansion of an array, and sets place: empty at the program itself, else a path with a space
// before each command.
func walk(places []place, words string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "    for word in \"${%s}\"; do\n        case \"$place $word\" in\n", words)
	for _, p := range places[1:] {
		fmt.Fprintf(&b, "        %s) place=%s ;;\n", quote(" "+p.path), quote(" "+p.path))
	}
	b.WriteString("        esac\n    done\n")
	return b.String()
}

func bash(name string, places []place) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# bash completion for %[1]s; written by %[1]s completion bash.
_%[1]s() {
    local current=$2 before=${COMP_WORDS[COMP_CWORD - 1]} place='' word words
    # Bash parts words at =, so that --name=value is three of them.
    if [[ ${COMP_WORDS[COMP_CWORD]} == '=' ]]; then
        current=
    elif [[ $before == '=' && COMP_CWORD -gt 1 ]]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi
%[2]s    COMPREPLY=()
    case "$place:$before" in
`, name, walk(places, "COMP_WORDS[@]:1:COMP_CWORD - 1"))
	for _, p := range places {
		for _, f := range p.flags {
			if f.IsBool() {
				continue
			}
			reply := ""
			if values := valuesOf(f); len(values) > 0 {
				reply = fmt.Sprintf(` mapfile -t COMPREPLY < <(compgen -W %s -- "$current");`, quote(strings.Join(values, " ")))
			} else if takesPath(f) {
				reply = ` compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$current");`
			}
			fmt.Fprintf(&b, "    %s)%s return ;;\n", quote(spaced(p.path)+":--"+f.Name), reply)
		}
	}
	b.WriteString("    esac\n    words=\n    case \"$place\" in\n")
	for _, p := range places {
		var words, flags []string
		for _, w := range p.words {
			words = append(words, w.name)
		}
		for _, f := range p.flags {
			flags = append(flags, "--"+f.Name)
		}
		fmt.Fprintf(&b, "    %s) words=%s; [[ $current != -* ]] || words=%s ;;\n", quote(spaced(p.path)), quote(strings.Join(words, " ")), quote(strings.Join(flags, " ")))
	}
	fmt.Fprintf(&b, `    esac
    if [[ -n $words ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    else
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}
complete -F _%[1]s %[1]s
`, name)
	return b.String()
}

// spaced returns a path of commands with a space before each.
func spaced(path string) string {
	if path == "" {
		return ""
	}
	return " " + path
}

func zsh(name string, places []place) string {
	var b strings.Builder
	fmt.Fprintf(&b, `#compdef %[1]s
# zsh completion for %[1]s; written by %[1]s completion zsh.
_%[1]s() {
    local current=${words[CURRENT]} before=${words[CURRENT-1]} place='' word
    local -a follow
    if [[ $current == --*=* ]]; then
        before=${current%%%%=*}
        compset -P '*='
    fi
%[2]s    case "$place:$before" in
`, name, walk(places, `(@)words[2,CURRENT-1]`))
	for _, p := range places {
		for _, f := range p.flags {
			if f.IsBool() {
				continue
			}
			reply := ""
			if values := valuesOf(f); len(values) > 0 {
				reply = fmt.Sprintf(" follow=(%s); _describe value follow;", strings.Join(values, " "))
			} else if takesPath(f) {
				reply = " _files;"
			}
			fmt.Fprintf(&b, "    %s)%s return ;;\n", quote(spaced(p.path)+":--"+f.Name), reply)
		}
	}
	b.WriteString("    esac\n    case \"$place\" in\n")
	for _, p := range places {
		var words, flags []string
		for _, w := range p.words {
			words = append(words, quote(colons(w.name)+":"+w.meaning))
		}
		for _, f := range p.flags {
			flags = append(flags, quote(colons("--"+f.Name)+":"+summary(f)))
		}
		fmt.Fprintf(&b, "    %s) follow=(%s); [[ $current != -* ]] || follow=(%s) ;;\n", quote(spaced(p.path)), strings.Join(words, " "), strings.Join(flags, " "))
	}
	fmt.Fprintf(&b, `    esac
    if (( ${#follow} )); then
        _describe command follow
    else
        _files
    fi
}
_%[1]s "$@"
`, name)
	return b.String()
}

// colons returns a word as _describe takes it, which ends it at a colon.
func colons(text string) string { return strings.ReplaceAll(text, ":", `\:`) }

func fish(name string, places []place) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# fish completion for %[1]s; written by %[1]s completion fish.
function __%[1]s_at --description 'Whether the command line stands at these commands'
    set -l place ''
    for word in (commandline -opc)[2..-1]
        switch "$place $word"
`, name)
	for _, p := range places[1:] {
		fmt.Fprintf(&b, "            case %s\n                set place %s\n", fishQuote(" "+p.path), fishQuote(" "+p.path))
	}
	b.WriteString("        end\n    end\n    test \"$place\" = \"$argv[1]\"\nend\n")
	for _, p := range places {
		line := fmt.Sprintf("complete -c %s -n %s", name, fishQuote("__"+name+"_at "+fishQuote(spaced(p.path))))
		for _, w := range p.words {
			fmt.Fprintf(&b, "%s -f -a %s -d %s\n", line, w.name, fishQuote(w.meaning))
		}
		for _, f := range p.flags {
			takes := ""
			switch values := valuesOf(f); {
			case f.IsBool():
			case len(values) > 0:
				takes = " -x -a " + fishQuote(strings.Join(values, " "))
			case takesPath(f):
				takes = " -r -F"
			default:
				takes = " -x"
			}
			fmt.Fprintf(&b, "%s -l %s%s -d %s\n", line, f.Name, takes, fishQuote(summary(f)))
		}
	}
	return b.String()
}

// fishQuote returns text as one word of fish, where a backslash keeps its meaning between quotes.
func fishQuote(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}
