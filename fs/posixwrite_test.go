package fs

import (
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

// posixCannot says which tests of posixtest claim what a bucket cannot be, and why.
var posixCannot = map[string]string{
	"FcntlFlockLocksFile": "it wants two descriptors of one process to lock each other out, which record locks on Linux never do; locks are in TestPosixReads",
	"Link":                "an object has one key: link(2) is EPERM, which TestErrnosOfWhatCannotBe claims",
	"LinkUnlinkRename":    "it needs a second link",
	"NlinkZero":           "it links before it renames; link counts are in TestUnlinkedAndRenamedWhileOpen",
	"OpenSymlinkRace":     "it replaces a name without end while it opens it: a file that is replaced between lookup and open, twice in a row, is ESTALE",
	"XAttrLarge":          "it sets 8 KiB, and all metadata of an object has less: TestErrnosOfExtendedAttributes",
}

// TestPosix runs posixtest over a mount that can be written.
func TestPosix(t *testing.T) {
	for name, reason := range posixCannot {
		if posixtest.All[name] == nil || reason == "" {
			t.Errorf("posixtest has no %s, or there is no reason", name)
		}
	}
	for _, mode := range []Choice{On, Off} {
		for name, test := range posixtest.All {
			if posixCannot[name] != "" {
				continue
			}
			t.Run(name+", passthrough "+mode.String(), func(t *testing.T) {
				w := mountWritten(t, startStore(t), writtenOptions{config: Config{Passthrough: mode, PassthroughMin: 1, Attrs: true}})
				test(t, w.dir)
			})
		}
	}
}
