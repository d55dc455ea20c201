// Package suite measures: it knows the targets, and the order of steps that makes a
// figure trustworthy. What is measured are the workloads of bench/workload.
//
// The [Runner] puts the data where the clients need them, starts the server with
// the wanted link, and takes samples of the clients in turn (A B A B), so that a
// machine that gets slower does so for all of them. A sample is one run of a
// reading process; around it the runner notes what client, daemon, server and
// strangers used. A [Goal] is a comparison with what must be reached.
package suite
