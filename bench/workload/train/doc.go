// Package train holds the workloads that train, in the shapes of MLPerf Storage, and their
// data sets.
package train
