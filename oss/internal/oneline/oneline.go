// Package oneline makes text of others fit for a line of a log or an error.
package oneline

import (
	"fmt"
	"strings"
)

// Of returns at most limit bytes of text without control characters.
func Of(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > limit {
		text = fmt.Sprintf("%s…", strings.ToValidUTF8(text[:limit], ""))
	}
	return text
}
