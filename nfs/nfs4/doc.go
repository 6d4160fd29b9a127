// Package nfs4 is the wire format of NFS version 4.1 (RFC 8881), and of what is served of 4.2 (RFC 7862).
//
// A call is a COMPOUND: [CompoundArgs], then each operation's [OpNum] and arguments. The
// reply is [CompoundRes], then each operation's OpNum and result. The callback program
// has the same form. The files have the arguments and results of the operations, one
// family each: a struct with the RFC's name without the "4", with Append (encode) and
// Decode. An operation without arguments has no struct for them.
//
// A result is one struct for all statuses; which fields are on the wire depends on
// Status, as in the RFC's unions. Decode never copies: handles, names, owners and data
// alias the record, and their maximum lengths are defined here.
package nfs4
