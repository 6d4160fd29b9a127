package nfsbench

import (
	"fmt"
	"time"

	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// delayed is how long until a call is repeated to which the server said DELAY or GRACE.
const delayed = 20 * time.Millisecond

// compound begins a COMPOUND with SEQUENCE. The operations are to be appended to out, each
// with its number by op. cache is whether the server keeps the reply for a retry, which
// the Linux client wants of operations that change names or state.
func (l *calls4) compound(cache bool) {
	l.begin(nfs4.Program, nfs4.Version, nfs4.ProcCompound)
	l.out = (&nfs4.CompoundArgs{MinorVersion: l.session.minor}).Append(l.out)
	l.countAt, l.ops = len(l.out)-4, 0
	l.op(nfs4.OpSequence)
	l.seqAt = len(l.out) + nfs4.SessionIDSize
	args := nfs4.SequenceArgs{SessionID: l.session.id, SlotID: l.slot, HighestSlotID: l.session.highest, CacheThis: cache}
	l.out = args.Append(l.out)
}

// op appends an operation's number. Its arguments follow.
func (l *calls4) op(num nfs4.OpNum) {
	l.out = num.Append(l.out)
	l.ops++
}

// on is compound, and PUTFH.
func (l *calls4) on(fh []byte, cache bool) {
	l.compound(cache)
	l.putfh(fh)
}

func (l *calls4) putfh(fh []byte) {
	l.op(nfs4.OpPutfh)
	l.out = (&nfs4.PutfhArgs{FH: fh}).Append(l.out)
}

// send makes the call, again as long as the server asks for that, and returns the results
// after SEQUENCE.
func (l *calls4) send() (xdr.Decoder, error) {
	xdr.Patch(l.out, l.countAt, l.ops)
	seq := &l.session.seqs[l.slot]
	for repeat := l.session.newRepeat(); ; {
		xdr.Patch(l.out, l.seqAt, *seq+1)
		d, err := l.lane.send()
		if err != nil {
			return d, err
		}
		var head nfs4.CompoundRes
		head.Decode(&d)
		var res nfs4.SequenceRes
		err = result(&d, nfs4.OpSequence)
		res.Decode(&d)
		if err == nil {
			*seq++
			l.flags = res.StatusFlags
		}
		if repeat.wants(head.Status) {
			continue
		}
		return d, err
	}
}

// onHandle is send, and what the results of on begin with.
func (l *calls4) onHandle() (xdr.Decoder, error) {
	d, err := l.send()
	if err == nil {
		err = done(&d, nfs4.OpPutfh)
	}
	return d, err
}

// decoder is a result that can be decoded.
type decoder interface{ Decode(d *xdr.Decoder) }

// change is a call of one operation on fh whose reply the server keeps for a retry.
func (l *calls4) change(fh []byte, num nfs4.OpNum, args rpc.Args, res decoder) error {
	l.on(fh, true)
	l.op(num)
	l.out = args.Append(l.out)
	d, err := l.onHandle()
	if err == nil {
		err = result(&d, num)
	}
	if err != nil {
		return err
	}
	res.Decode(&d)
	return decoded4(num, &d)
}

// result consumes the number of an operation, and returns an error if its result, which is
// next, has not the status OK.
func result(d *xdr.Decoder, num nfs4.OpNum) error {
	var got nfs4.OpNum
	got.Decode(d)
	next := *d
	status := nfs4.Status(next.Uint32())
	switch {
	case next.Err() != nil:
		return fmt.Errorf("%v: decode the results: %w", num, next.Err())
	case got != num:
		return fmt.Errorf("%v: the server answers %v", num, got)
	case status != nfs4.OK:
		return &statusError{num.String(), uint32(status), status}
	}
	return nil
}

// done consumes the result of an operation that has nothing but its status.
func done(d *xdr.Decoder, num nfs4.OpNum) error {
	err := result(d, num)
	d.Uint32()
	return err
}

// decoded4 returns an error if an operation's result was not as it must be.
func decoded4(num nfs4.OpNum, d *xdr.Decoder) error {
	if err := d.Err(); err != nil {
		return fmt.Errorf("%v: decode the results: %w", num, err)
	}
	return nil
}

// repeat is for calls that the server can't answer yet.
type repeat struct {
	until time.Time
	wait  time.Duration
}

// wants reports whether the call is to be made again, after a while.
func (r *repeat) wants(status nfs4.Status) bool {
	if status != nfs4.ErrDelay && status != nfs4.ErrGrace {
		return false
	}
	if now := time.Now(); r.until.IsZero() {
		r.until = now.Add(r.wait)
	} else if now.After(r.until) {
		return false
	}
	time.Sleep(delayed)
	return true
}

// bare makes a call of one operation, without a session.
func (s *session4) bare(l *lane, num nfs4.OpNum, args rpc.Args, res decoder) error {
	for again := s.newRepeat(); ; {
		l.begin(nfs4.Program, nfs4.Version, nfs4.ProcCompound)
		l.out = (&nfs4.CompoundArgs{MinorVersion: s.minor, NumOps: 1}).Append(l.out)
		l.out = args.Append(num.Append(l.out))
		d, err := l.send()
		if err != nil {
			return err
		}
		var head nfs4.CompoundRes
		head.Decode(&d)
		switch {
		case head.Status == nfs4.ErrMinorVersMismatch:
			return fmt.Errorf("the server does not serve version 4.%d: %w", s.minor, &statusError{"COMPOUND", uint32(head.Status), head.Status})
		case again.wants(head.Status):
			continue
		}
		if err := result(&d, num); err != nil {
			return err
		}
		res.Decode(&d)
		return decoded4(num, &d)
	}
}
