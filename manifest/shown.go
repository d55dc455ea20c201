package manifest

import "context"

// ObjectKey returns the key of the object that is shown as name in the directory dir
// of a mount of the keys under mounted, if there is one. ok is false if none could
// be.
func ObjectKey(mounted, dir, name string) (key string, ok bool) {
	component, _, named := componentOf(name)
	prefix, shown := prefixOf(mounted, dir)
	if !named || !shown || len(prefix)+len(component) > maxKey {
		return "", false
	}
	return prefix + component, true
}

// Totals returns how many files are shown, and what they hold in bytes; zeros where
// the manifest is damaged.
func (s *Snapshot) Totals() (files, bytes int64) {
	stats, err := s.DirStats(context.Background(), "")
	if err != nil {
		return 0, 0
	}
	return stats.Files, stats.Bytes
}
