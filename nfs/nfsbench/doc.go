// Package nfsbench loads NFSv3 servers from the wire and says how fast they
// answer.
//
// Run takes one server, or two that it loads turn by turn. A session is what the
// bench holds of one server: its connections, its workers, and a directory of its
// own there, in which it makes what the loads need and which it removes at the
// end. A load (loads.go has the list) is an operation that every worker repeats
// until the turn is over:
//
//	Run -> session.turn -> worker.run -> Load.op -> lane.call -> conn
//
// A worker is one call in flight: it waits for the answer before it goes on. Its
// lane carries the call and the buffers that are used again for each. The calls
// of a connection's lanes share it: one goroutine writes what has come together,
// one reads the replies, each into the buffer of the lane that waits for it.
//
// Whatever is read is compared with what was written there, see pattern.go.
package nfsbench
