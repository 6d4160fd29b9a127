package nfsbench

import (
	"fmt"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// lane makes one call at a time over a connection that it shares with others.
// Decoded results alias its buffer, and are valid until its next call.
type lane struct {
	conn *conn
	cred rpc.Auth
	done chan error // of the call in flight
	out  []byte     // the call, kept for the next
	in   []byte     // the reply, kept for the next
}

func newLane(cred rpc.Auth) *lane {
	return &lane{cred: cred, done: make(chan error, 1)}
}

// begin begins a call. The arguments are to be appended to out.
func (l *lane) begin(prog, vers, proc uint32) {
	h := rpc.CallHeader{RPCVersion: rpc.Version, Prog: prog, Vers: vers, Proc: proc, Cred: l.cred}
	b, _ := rpc.BeginRecord(l.out[:0])
	l.out = h.Append(b)
}

// send makes the call that is in out and returns its results.
func (l *lane) send() (xdr.Decoder, error) {
	rpc.EndRecord(l.out, 0)
	if err := l.conn.start(l); err != nil {
		return xdr.Decoder{}, &connError{err}
	}
	if err := <-l.done; err != nil {
		return xdr.Decoder{}, &connError{err}
	}
	d := xdr.NewDecoder(l.in)
	var reply rpc.ReplyHeader
	reply.Decode(&d)
	if err := d.Err(); err != nil {
		return d, fmt.Errorf("decode the reply's header: %w", err)
	}
	return d, reply.Err()
}

// call makes a call and returns its results. Args may be nil.
func (l *lane) call(prog, vers, proc uint32, args rpc.Args) (xdr.Decoder, error) {
	l.begin(prog, vers, proc)
	if args != nil {
		l.out = args.Append(l.out)
	}
	return l.send()
}

// connError is the error of a broken connection, for all calls on it.
type connError struct{ err error }

func (e *connError) Error() string { return e.err.Error() }
func (e *connError) Unwrap() error { return e.err }
