// Package manual writes what a package installs of a command line beside the program: manual pages
// and completion for bash, zsh and fish. All of it comes from the grammar that kong parses by, so
// nothing can be forgotten and nothing said twice.
//
// A command whose field has the tag elsewhere:"PROGRAM" is one that another program answers: its
// page is left to that program.
package manual
