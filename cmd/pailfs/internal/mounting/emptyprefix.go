package mounting

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/config"
	"github.com/pailfs/pailfs/oss"
)

// lookAroundTime is how long a start may take to find out what an empty prefix was meant to be.
const lookAroundTime = 3 * time.Second

// tellOfEmptyPrefix says that nothing is below what is mounted, which is right for who writes the
// first file, and wrong for who misspelt it.
func (d *Daemon) tellOfEmptyPrefix(ctx context.Context) {
	if len(d.store.first) > 0 {
		return
	}
	if d.Source.Prefix == "" {
		d.Log.Warn("there is no object yet: the mount is empty", "source", d.Source.String())
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookAroundTime)
	defer cancel()
	text := fmt.Sprintf("nothing below %s/", d.Source)
	if meant := meantPrefix(ctx, d.store.client.As(oss.Demand), d.Source.Prefix); meant != "" {
		text += fmt.Sprintf("; did you mean %s?", meant)
	}
	d.Log.Warn("there is no object yet: the mount is empty. Check the prefix if that is not so", "source", d.Source.String(), "hint", text)
	d.Notice(text)
}

// meantPrefix returns the prefix that is there and was probably meant by one that is not, "" if none
// is near. It looks at the first thousand names of each directory on the way. Both end with a slash.
func meantPrefix(ctx context.Context, names oss.Lister, prefix string) string {
	above := ""
	for part := range strings.SplitSeq(strings.TrimSuffix(prefix, "/"), "/") {
		page, err := names.List(ctx, oss.ListRequest{Prefix: above, Delimiter: "/"})
		if err != nil {
			return "" // these keys may see no more, or there is no time
		}
		there := make([]string, 0, len(page.Prefixes))
		known := false
		for _, p := range page.Prefixes {
			name := strings.TrimSuffix(strings.TrimPrefix(p, above), "/")
			known = known || name == part
			there = append(there, name)
		}
		if !known {
			return meantName(above, part, there)
		}
		above += part + "/"
	}
	return ""
}

// meantName returns the directory in above that is nearest to name.
func meantName(above, name string, there []string) string {
	for _, t := range there {
		if strings.EqualFold(t, name) {
			return above + t + "/"
		}
	}
	if near := config.Nearest(name, there); near != "" {
		return above + near + "/"
	}
	return ""
}
