package result

import (
	"io"
	"strings"
)

// Table is text in rows and columns.
type Table struct {
	Columns []string
	Rows    [][]string
}

// WriteMarkdown writes t after what says where and when r was taken.
func (t Table) WriteMarkdown(w io.Writer, r *Report) error {
	var b strings.Builder
	r.writeMachine(&b)
	row := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	row(t.Columns)
	b.WriteString(strings.Repeat("|---", len(t.Columns)) + "|\n")
	for _, cells := range t.Rows {
		row(cells)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
