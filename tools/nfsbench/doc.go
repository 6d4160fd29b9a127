// Package nfsbench loads servers of NFS, version 3, 4.1 or 4.2, over the wire and measures their speed.
//
// Run takes one server, or two that it loads turn by turn. A benchmark has the
// bench's state for one server: its connections, its workers, and its own
// directory there, in which it creates the loads' files and which it removes at
// the end. A load (loads.go has the list) is an operation that every worker
// repeats until the turn is over:
//
//	Run -> benchmark.runTurn -> worker.run -> Load.op -> calls -> lane.send -> conn
//
// The loads know no version: calls3 and calls4 make their calls, and protocol3 and
// protocol4 what is needed before, such as MOUNT or a session.
//
// A worker makes one call at a time, and waits for its reply. Its lane has the
// call and buffers that are reused for each. The lanes of a connection share it:
// one goroutine writes the queued calls, one reads the replies, each into the
// buffer of the lane that waits for it.
//
// All data read is compared with the data written, see pattern.go.
package nfsbench
