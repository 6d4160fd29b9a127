// Package nfstest4 tests servers of NFS version 4.1 over the wire.
//
// [Run] is the conformance suite: RFC 8881 decides what is right, and each expectation
// names its section. Where the RFC leaves a choice the suite accepts all of it.
//
// Each test has its own connection, client and session, and its own directory in the
// export, which is removed if the test passes. What the tests send is a list of
// operations, made by the functions of ops.go; a client puts SEQUENCE in front of it and
// keeps its slot's sequence.
//
// There is one file of tests per part of the protocol, with a table at its top.
package nfstest4
