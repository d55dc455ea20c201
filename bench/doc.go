// Command bench measures pailfs beside the machine's limits: the plain disk,
// and requests without a file system, on the same server and the same data, in
// one run.
//
//	bench targets           # what must be reached, into bench/results
//	bench read/seq-cold     # one workload
//	bench --list            # what there is
//	bench demo              # a real data set, step by step, with a picture
//
// README.md says what was found, METHOD.md how.
package main
