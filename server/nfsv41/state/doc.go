// Package state is what an NFSv4.1 server remembers of its clients: client IDs,
// sessions and their slots with cached replies, opens with share reservations,
// byte-range locks, leases, and the grace period after a crash (RFC 8881). It answers
// with the statuses of package nfs4, and knows no more of the wire. It knows no files: a file is a key, an open file is a Descriptor, a
// connection is a Conn, time comes from Config.Now.
//
// A client's way through it: ExchangeID makes an unconfirmed record; CreateSession
// confirms it, which ends the client's incarnation before, if that was at the same address or is silent (replace.go); Sequence takes a slot,
// renews the lease, and returns the Client through its Slot; ReclaimComplete ends the
// client's own reclaiming; Open, Lock and the like take that Client; Done ends the
// COMPOUND and keeps its reply. Expire is called each second. Leave writes all of it for the
// next process, the Log what has changed in case that this one dies, and Replay reads either.
//
// A client that is silent for longer than the lease keeps what it has: others call it a courtesy client. It is
// removed, as a whole, when somebody else wants some of that, or after Config.Courtesy.
//
// # Locks
//
// One mutex, State.mu, guards everything, so there is no order of locks. What it guards is in five types, from
// the bottom up: stateLog (log.go), grace, sessions, opens and locks. Each knows those below it, and none knows State, whose
// methods join them: one for each operation. What they hold, such as a Client, a session or an openState, is in objects.go.
//
// Nothing is done under mu that waits, or that grows with what somebody holds: there is an index, or a task of
// short steps, between which mu is free (work.go). TestWork counts the steps with each table at its limit.
//
// One mutex is enough: the calls of a READ (Sequence, Check, Done) take 0.3 us together, clock and all, and two
// processors get through more of them than one (go test -bench Read -cpu 1,2), so that 300,000 READs a second, more than
// the rest of the server can do, keep it busy for less than a tenth of the time. In return no call ever sees a client
// half gone: what it held is void at once, though it is removed in steps (openState.void). Denies, which is asked at
// each READ and WRITE of version 3, does not take mu unless somebody denies something.
//
// What does grow is the end of the grace period, once in the life of a process, the beginning of a copy of the Log in it, and
// Awaited, each 2 seconds of it while a node is out of service.
//
// The Log is written under it, by unlock: 2 to 3 us for each OPEN, CLOSE, LOCK and LOCKU, most
// of it for write(2), and nothing for other calls (go test -bench Logged).
//
// What has to happen without the lock (Descriptor.Release, Config.Abandoned, Config.Event, Config.LockFree)
// is collected while it is held, and done by unlock. Tracking is called without it,
// too: recordLocked and dismissLocked let go of mu for that, and their callers begin anew.
//
// # Memory
//
// An open of a file of its own has about 560 bytes, with an owner's name like
// Linux's; a lock owner with one range 300; a further range 120; a client with a
// session 1.2 KiB, and 64 bytes for each slot (go test -v -run Memory). Cached replies
// come on top: what a session may cache is reserved when it is made.
//
// # Limits
//
// Who passes one of the Limits gets an error, and nobody else notices: of what is limited for
// all, the last quarter is for those who have less than their share of it, by client and by address
// (usage.go). EXCHANGE_ID
// gets DELAY, CREATE_SESSION and OPEN NOSPC, LOCK and LOCKU (which can make two ranges
// of one) SERVERFAULT, for which RFC 8881 section 15.2 has nothing better. A waiter
// too many is not remembered, and asks again by itself. Before that, clients go (silent.go): those that never came back
// after EXCHANGE_ID, those whose lease is over and that hold nothing, and those whose lease is over and that hold
// most. Kept replies are never a reason: sessions get fewer and smaller ones.
//
// # Invariants
//
// The tests check these after each step (check_test.go):
//
//   - A client owner has at most one confirmed and one unconfirmed record.
//   - A client that holds an open is confirmed and in the client tracking.
//   - No two opens of a file deny what the other does, nor what an OPEN under way has reserved. There is one
//     open for each client, open owner and file.
//   - The ranges of a lock owner are in order, do not overlap, and do not touch if
//     they are of one type. Those that it has through several opens of a file do not
//     overlap either. No range that is locked for writing overlaps one of another owner.
//   - A seqid of a stateid goes up by exactly one with each OPEN and OPEN_DOWNGRADE
//     (of the open's), LOCK and LOCKU (of the lock's) that succeeds, and never is 0.
//   - A slot's sequence goes up by exactly one with each Sequence that returns a
//     Slot, and stays where it is with all others.
//   - All counters (per file, client and State) are what a count over the records
//     gives, and within the Limits.
//   - What a client loses is on nobody's list: a removed open or lock can't be found
//     by its stateid, file, or owner.
//   - While the grace lasts, nothing is granted but reclaims, to clients of the
//     client tracking that have not said RECLAIM_COMPLETE.
//   - When a call returns, the Log says all that there is, but for sessions.
//   - Nothing that a client in the client tracking held is given to another before the client tracking
//     on the disk says that it may not reclaim (RFC 8881 section 8.4.2.1, both edge
//     conditions).
package state
