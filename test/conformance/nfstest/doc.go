// Package nfstest tests NFSv3 servers over the wire.
//
// [Client] calls every procedure of NFS and MOUNT and returns the server's
// results. [Run] is the conformance suite for any server of NFSv3 and MOUNT v3
// over TCP: RFC 1813 decides what is right, and where it leaves a choice the suite
// accepts all replies that Linux clients can handle.
//
// The suite sends servers names and links that lead out of the export. A broken
// server follows them, often as root. They lead only to files of the test, and
// the directory of a failed test is not removed. Even so, test an unknown server
// where it can do no harm: in a mount namespace whose root is read-only, or as an
// ordinary user.
//
// Each test has its own connection and its own directory in the export, which is
// removed if the test passes. A [Target] lists each [Feature] that the server is
// known to lack, with the reason; the tests that need it are skipped by name.
//
// There is one file of tests per family of procedures, with a table at its top.
package nfstest
