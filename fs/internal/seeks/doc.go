// Package seeks tells who reads on in a directory from who came by seekdir(3), where
// the kernel opens directories by itself and nothing but offsets is left of a reader.
//
// Its type is a state machine without input, output or clock. It knows nothing of
// names.
package seeks
