// Package nfs3 is the wire format of NFS version 3 (RFC 1813).
//
// Its files have the arguments and results of the procedures, one family each: a struct
// with the RFC's name without the "3", with Append (encode) and Decode. A result is one
// struct for all statuses; which fields are on the wire depends on Status, as in the
// RFC's unions. Decode never copies: handles, names and data alias the record, and their
// maximum lengths are defined here.
package nfs3
