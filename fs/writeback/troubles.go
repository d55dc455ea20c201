package writeback

// troubles are the operations that do not go well, so that nobody looks at all for them.
type troubles struct {
	// failing cannot succeed as things are, retrying have failed and may; restless are among
	// unsettled, see outpaces.
	failing, retrying, unsettled map[uint64]bool
}

func newTroubles() troubles {
	return troubles{failing: make(map[uint64]bool), retrying: make(map[uint64]bool), unsettled: make(map[uint64]bool)}
}

// fail notes that an attempt failed, for good if permanent.
func (t *troubles) fail(id uint64, permanent bool) {
	delete(t.failing, id)
	delete(t.retrying, id)
	if permanent {
		t.failing[id] = true
	} else {
		t.retrying[id] = true
	}
}

// unquiet notes that a file changed while it was read or sent.
func (t *troubles) unquiet(id uint64) { t.unsettled[id] = true }

// end forgets an operation.
func (t *troubles) end(id uint64) {
	delete(t.failing, id)
	delete(t.retrying, id)
	delete(t.unsettled, id)
}

// failed reports whether any attempt failed of what is still to be done.
func (t *troubles) failed() bool { return len(t.failing)+len(t.retrying) > 0 }

// stuck reports whether anything cannot succeed as things are.
func (t *troubles) stuck() bool { return len(t.failing) > 0 }
