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
		"write/ckpt-stall":        "not proven at this size; uploads, which begin before it is known that a program writes fast, are suspected: with them held at 1 MB/s, in one run each, four of eight saves of 128 MiB took 0.08 to 0.14 s and the others 0.31 to 0.38 s, and all took 0.28 to 0.51 s unheld; 2 GiB every 5 s take 0.82 of the disk's time (targets, write-stall)",
		"write/small":             "each file is six requests to the daemon, in and out of which goes a third of its processor time; a fifth makes the staged file, a quarter writes its record, so that it survives the daemon after close",
	}
}
