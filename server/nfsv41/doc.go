// Package nfsv41 serves NFS version 4.1 (RFC 8881), and what there is of 4.2 (RFC 7862): operations says which operation is of
// which minor version.
//
// A call is a COMPOUND of operations that are done one after the other, each on the files
// that the ones before have found: the current one and the saved one. Server.compound begins a call, and
// compound.answer is the loop over its operations: it decodes an operation's number, finds its function in the table
// (compound.operation), calls that, and appends the result. The function decodes the arguments, calls the
// operation of package vfs, and returns what is to be encoded. It runs once, and what it has changed is
// synced when it returns. What clients have open and locked is in package state, and so are their sessions.
//
// A client finds the volumes in one tree, whose upper directories are not on the disk (pseudo.go).
//
// What clients have outlives the process in three ways. A server that is meant to end hands all of it
// over (handover.go). One that dies leaves a log of it in memory (statelog.go). Where neither can be
// used, a list on the disk says which clients had something, and may reclaim it (tracking.go).
//
// Order of locks: notices.mu, State.mu. With others held, none is taken.
package nfsv41
