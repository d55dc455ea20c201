package suite

// Behind says of workloads what keeps pailfs behind the disk, or behind other clients,
// as far as measuring has shown it.
func Behind() map[string]string {
	names := "names come from the bucket, a page of a thousand after another, and the disk has them"
	return map[string]string{
		"read/seq-cold":   "a short object is over while requests still become more and wider: a GiB runs at 0.93 of the link (targets, seq-cold-link)",
		"read/seq-ssd":    "the file is passed through to the kernel, so that the disk decides, and where on it a file lies (see above)",
		"read/rand4k-ssd": "the file is passed through to the kernel, so that the disk decides, and where on it a file lies (see above)",
		"read/small-warm": "each open and each close is a request to the daemon; an immutable mount makes neither",
		"list/10k":        names, "list/1m": names, "stat/tree": names,
		"list/10k" + listedAgain:  "the kernel asks the daemon for each piece of a directory",
		"list/1m" + listedAgain:   "the kernel asks the daemon for each piece of a directory",
		"stat/tree" + listedAgain: "the kernel asks the daemon for each piece of a directory",
		"write/append":            "the page cache takes memory that the machine's host gives anew: the disk takes as long in the same rounds (targets, write-append-disk)",
		"write/ckpt-stall":        "at this size the copy to the page cache is slow: 280 of 303 ms for 128 MiB (perf), which took 76 of 97 ms on the disk; pages that the machine's host gives anew are the likely reason, as the disk has those of the file that was removed before; without any upload of files that are being written it took as long; 2 GiB every 5 s take 0.82 of the disk's time (targets, write-stall)",
		"write/small":             "each file is six requests to the daemon: a go-fuse program that answers them and keeps nothing reached 0.11 to 0.14 of the disk here, one that makes a staged file and records its bytes at the close, and no more, 0.09 to 0.11 (targets, write-small, measures both)",
	}
}
