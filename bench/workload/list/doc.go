// Package list holds the workloads that list and stat names (list/…, stat/tree), and the
// trees of names that they are over.
package list
