// Package nfs3 is the wire format of NFS version 3 (RFC 1813).
//
// Its files hold the arguments and results of the procedures, one family each: a struct
// named for the RFC's without the "3", with Append (encode) and Decode. A result is one
// struct for all statuses; which fields are on the wire depends on Status, as the RFC's
// unions have it. Decode never copies: handles, names and data alias the record they
// came in, and have the maximum that is given here.
package nfs3
