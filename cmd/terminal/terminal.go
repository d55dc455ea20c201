package terminal

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"
)

// Is reports whether stream, of which a writer or reader is wanted, is a terminal.
func Is(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// leastColumns is how narrow a terminal is believed to be, and someColumns what is taken for one
// that says less.
const (
	leastColumns = 40
	someColumns  = 80
)

// Columns returns how many characters a line of the terminal has, 0 if stream is none.
func Columns(stream any) int {
	if !Is(stream) {
		return 0
	}
	width, _, err := term.GetSize(int(stream.(*os.File).Fd()))
	if err != nil || width < leastColumns {
		return someColumns
	}
	return width
}

// Size returns bytes for people, in binary units: "1.5 MiB".
func Size(bytes int64) string { return humanize.IBytes(uint64(max(bytes, 0))) }

// Name returns a path as a terminal may show it: one that would steer it is quoted, and that of
// the mount itself is a slash.
func Name(path string) string {
	if path == "" {
		return "/"
	}
	if strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return strconv.Quote(path)
	}
	return path
}

// Text returns a sentence as a terminal may show it: what would steer it is written as in quotes. The
// sentence may be about a name, or be that of a server.
func Text(sentence string) string {
	var b strings.Builder
	for i, r := range sentence {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			// A byte that is not UTF-8 comes as a ReplacementChar of one byte.
			_, size := utf8.DecodeRuneInString(sentence[i:])
			quoted := strconv.Quote(sentence[i : i+size])
			b.WriteString(quoted[1 : len(quoted)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Agrees asks a user at a terminal, who reads the question in out and answers in in. Only y is
// yes; nobody else agrees.
func Agrees(in io.Reader, out io.Writer, question string) bool {
	if !Is(out) || !Is(in) {
		return false
	}
	fmt.Fprintf(out, "%s [y/N] ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	return err == nil && strings.EqualFold(strings.TrimSpace(answer), "y")
}
