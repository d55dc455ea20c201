// Package wire holds what the commands and the daemon of a mount say to each other: the parameters
// and answers of the control methods that only this program calls, and the word that a daemon
// leaves in its cache directory when it ends. Both ends share these types, so that they mean the
// same.
//
// It holds no logic of either end. What loaders call is in prefetch/control. Fields may be added;
// what is here keeps its name and meaning, for the daemon may be older or newer than the command.
package wire
