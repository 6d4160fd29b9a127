// Package nfs4 serves NFS version 4.1 (RFC 8881).
//
// A call is a COMPOUND of operations that are done one after the other, each on the files
// that the ones before have found: the current one and the saved one. Like nfs3, it
// decodes an operation, calls that of package vfs, and encodes what comes of it. What
// clients have open and locked is in package state, and so are their sessions.
package nfs4
