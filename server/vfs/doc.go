// Package vfs has the operations on files that protocols are made of, without a version:
// opening, rights, reading, writing, attributes, names, and syncing.
//
// A Task is a call on its way through them. It begins on the connection's goroutine, which
// is root and opens the files of the call's handles. What needs no other identity is done
// right there. For all else the task goes on with a worker, a thread that has the caller's
// identity, so that the kernel decides what the caller may do. What must be on the disk
// before the reply is synced in between, without a goroutine that waits for it.
//
// Operations report with "done" that it takes a worker, and have done nothing then; the
// protocol's Step returns AsCaller and calls them again.
package vfs
