// Package command runs the programs of this repository that have commands: it parses the
// arguments, calls the command that they name, prints its error as one line and returns the exit
// code.
//
//	p := command.Started("pailfs-csi", version)
//	os.Exit(p.Run("Volumes of pailfs for pods.", new(cli)))
//
// A command is a method Run that takes a [Program], which is all that it may use of its
// surroundings, so that a test can call it with others. What it prints goes to Stdout, what it
// says beside that to Stderr. An error that it returns fails with exit code [Failed], unless
// it is an [Error] that names another.
//
// The emulator of the object store, which shares no code with the other programs, and bench, which
// is no command of users, have their own.
package command
