// Package vfs has the operations on files, independent of the protocol's version: opening,
// rights, reading, writing, attributes, names, and syncing.
//
// A Task is a call on its way through them. It begins on the connection's goroutine, which
// is root and opens the files of the call's handles. Operations that need no other identity are
// executed there. For the others the task continues on a worker, a thread that has the caller's
// identity, so that the kernel decides what the caller may do. Between its steps a task waits
// for syncs, without a goroutine.
//
// An operation that returns false for done has done nothing and needs a worker: the protocol's
// Step then returns AsCaller, and calls the operation again.
//
// The methods of a Task, and the operations, must be called on the goroutine that runs the task:
// the one that called Begin, and then the one that called Step. The files that they get must be
// open in the same task. Where an operation needs the caller's identity (IsCaller), its comment
// says so.
package vfs
