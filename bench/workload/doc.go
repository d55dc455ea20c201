// Package workload says what is measured, as data: a [Workload] is a pattern of reading,
// writing or listing over a data set, in a state of the caches; [Sizes] say how much.
// The packages below it are the kinds, by what is done. How a workload is carried out
// and measured is the business of bench/suite.
package workload
