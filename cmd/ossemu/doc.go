// Command ossemu serves the OSS protocol over a local directory, as slowly and
// as badly as it is told to. README.md describes it.
package main
