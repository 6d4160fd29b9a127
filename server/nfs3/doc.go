// Package nfs3 is the NFS version 3 protocol of RFC 1813.
//
// The wire files hold the arguments and results of its procedures, one family
// each: a struct named for the RFC's without the "3", with Append (encode) and
// Decode. A result is one struct for all statuses; which fields are on the wire
// depends on Status, as the RFC's unions have it. Decode never copies: handles,
// names and data alias the record they came in, and have the maximum that is
// given here.
package nfs3
