// Package nfstest puts NFSv3 servers to the test, from the wire.
//
// [Client] calls every procedure of NFS and MOUNT and hands back what the
// server said. [Run] is the conformance suite for any server that speaks NFSv3
// and MOUNT v3 on TCP: RFC 1813 decides what is right, and where it leaves a
// choice all answers that Linux clients can live with are accepted.
//
// The suite hands servers names and links that lead out of the export. A broken
// server follows them, often as root. They lead only to what the test has made
// itself, and the directory of a test that failed is not removed. Even so, put
// an unknown server to the test where it can do no harm: in a mount namespace
// whose root is read-only, or as an ordinary user.
//
// Each test has a connection and a directory of its own under the export, which
// is removed if the test passes. What a server is known not to do is a [Feature] that
// its [Target] lacks, with the reason; the tests that need it are skipped by
// name.
//
// There is one file of tests per family of procedures, and a table at its top.
package nfstest
