package mounting

import (
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/wire"
	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/prefetch/control"
)

// TestAFlushHasNotFailedWhileTheStoreIsAway: who may read a file cannot be told then, to anybody
// but root.
func TestAFlushHasNotFailedWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	m := &rightsMount{Store: programtest.StartStore(t)}
	m.Put(t, "d/x", []byte("content"))
	_, m.at = m.mount(t)
	if err := m.SetFaults([]ossemu.Fault{{Kind: ossemu.FaultError, Code: "InternalError"}}); err != nil {
		t.Fatal(err)
	}
	flush := userCall{"flush", wire.FlushParams{Path: "d/x"}}
	if a := otherUser.run(t, errand{Dir: m.at, Calls: []userCall{flush}}).Answers[0]; a.Code != string(control.CodeUntold) {
		t.Errorf("told %q: %s", a.Code, a.Message)
	}
	var flushed wire.FlushAnswer
	if rootUser.call(t, m.at, "flush", flush.Params, &flushed); !flushed.Done {
		t.Errorf("root is told %+v", flushed)
	}
	if err := m.SetFaults(nil); err != nil {
		t.Fatal(err)
	}
	if otherUser.call(t, m.at, "flush", flush.Params, &flushed); !flushed.Done {
		t.Errorf("when it is back: %+v", flushed)
	}
}
