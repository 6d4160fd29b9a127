package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/podnas/podnas/nfs/xdr"
)

// Version is the only version of RPC.
const Version = 2

// msg_type of RFC 5531 section 9.
const (
	msgCall  = 0
	msgReply = 1
)

// CallHeader is a call up to its arguments (section 9, call_body).
type CallHeader struct {
	XID              uint32
	RPCVersion       uint32
	Prog, Vers, Proc uint32
	Cred, Verf       Auth

	// Bad is what is wrong with Cred or Verf if one is longer than section 8.2 lets it be. What
	// follows in the record is not decoded then.
	Bad AuthStat
}

// Append appends the header.
func (h *CallHeader) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, h.XID)
	b = xdr.AppendUint32(b, msgCall)
	b = xdr.AppendUint32(b, h.RPCVersion)
	b = xdr.AppendUint32(b, h.Prog)
	b = xdr.AppendUint32(b, h.Vers)
	b = xdr.AppendUint32(b, h.Proc)
	b = h.Cred.Append(b)
	return h.Verf.Append(b)
}

// isCall tells a call from a reply.
func isCall(rec []byte) bool {
	return len(rec) >= 8 && binary.BigEndian.Uint32(rec[4:]) == msgCall
}

// ErrReply is the error if a record to be decoded as a call is a reply.
var ErrReply = errors.New("rpc: a reply, not a call")

// Decode consumes the header, and leaves d at the arguments. If RPCVersion is
// not Version the fields after it are not decoded, because their format is
// unknown; the reply to such a call is RPCMismatch.
func (h *CallHeader) Decode(d *xdr.Decoder) {
	*h = CallHeader{XID: d.Uint32()}
	switch d.Uint32() {
	case msgCall:
	case msgReply:
		d.Fail(ErrReply)
		return
	default:
		d.Fail(xdr.ErrValue)
		return
	}
	h.RPCVersion = d.Uint32()
	if h.RPCVersion != Version {
		return
	}
	h.Prog = d.Uint32()
	h.Vers = d.Uint32()
	h.Proc = d.Uint32()
	if h.Cred.Decode(d); errors.Is(d.Err(), xdr.ErrTooLong) {
		h.Bad = AuthBadCred
		return
	}
	if h.Verf.Decode(d); errors.Is(d.Err(), xdr.ErrTooLong) {
		h.Bad = AuthBadVerf
	}
}

// ReplyStat is whether the server accepted the call (reply_stat).
type ReplyStat uint32

// Values of ReplyStat.
const (
	MsgAccepted ReplyStat = 0
	MsgDenied   ReplyStat = 1
)

// AcceptStat is the outcome of an accepted call (accept_stat).
type AcceptStat uint32

// Values of AcceptStat.
const (
	Success      AcceptStat = 0
	ProgUnavail  AcceptStat = 1
	ProgMismatch AcceptStat = 2
	ProcUnavail  AcceptStat = 3
	GarbageArgs  AcceptStat = 4
	SystemErr    AcceptStat = 5
)

// RejectStat is why a call was denied (reject_stat).
type RejectStat uint32

// Values of RejectStat.
const (
	RPCMismatch RejectStat = 0
	AuthError   RejectStat = 1
)

// AuthStat is what is wrong with a credential or verifier (auth_stat).
type AuthStat uint32

// Values of AuthStat that podnas gives.
const (
	AuthOK           AuthStat = 0
	AuthBadCred      AuthStat = 1
	AuthRejectedCred AuthStat = 2
	AuthBadVerf      AuthStat = 3
	AuthTooWeak      AuthStat = 5
)

// ReplyHeader is a reply up to the results (section 9, reply_body). The zero
// value with an XID is the header of a success.
type ReplyHeader struct {
	XID       uint32
	Stat      ReplyStat
	Verf      Auth       // if accepted
	Accept    AcceptStat // if accepted
	Reject    RejectStat // if denied
	Auth      AuthStat   // if denied for AuthError
	Low, High uint32     // with ProgMismatch and RPCMismatch: the supported versions
}

// Append appends the header.
func (h *ReplyHeader) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, h.XID)
	b = xdr.AppendUint32(b, msgReply)
	b = xdr.AppendUint32(b, uint32(h.Stat))
	if h.Stat == MsgDenied {
		b = xdr.AppendUint32(b, uint32(h.Reject))
		if h.Reject == AuthError {
			return xdr.AppendUint32(b, uint32(h.Auth))
		}
		return h.appendVersions(b)
	}
	b = h.Verf.Append(b)
	b = xdr.AppendUint32(b, uint32(h.Accept))
	if h.Accept == ProgMismatch {
		b = h.appendVersions(b)
	}
	return b
}

func (h *ReplyHeader) appendVersions(b []byte) []byte {
	b = xdr.AppendUint32(b, h.Low)
	return xdr.AppendUint32(b, h.High)
}

// Decode consumes the header, and leaves d at the results.
func (h *ReplyHeader) Decode(d *xdr.Decoder) {
	*h = ReplyHeader{XID: d.Uint32()}
	if d.Uint32() != msgReply {
		d.Fail(xdr.ErrValue)
		return
	}
	h.Stat = ReplyStat(d.Uint32())
	switch h.Stat {
	case MsgAccepted:
		h.Verf.Decode(d)
		h.Accept = AcceptStat(d.Uint32())
		switch {
		case h.Accept == ProgMismatch:
			h.decodeVersions(d)
		case h.Accept > SystemErr:
			d.Fail(xdr.ErrValue)
		}
	case MsgDenied:
		h.Reject = RejectStat(d.Uint32())
		switch h.Reject {
		case RPCMismatch:
			h.decodeVersions(d)
		case AuthError:
			h.Auth = AuthStat(d.Uint32())
		default:
			d.Fail(xdr.ErrValue)
		}
	default:
		d.Fail(xdr.ErrValue)
	}
}

func (h *ReplyHeader) decodeVersions(d *xdr.Decoder) {
	h.Low = d.Uint32()
	h.High = d.Uint32()
}

// Err returns nil for a success, else an *RPCError.
func (h *ReplyHeader) Err() error {
	if h.Stat == MsgAccepted && h.Accept == Success {
		return nil
	}
	return &RPCError{Stat: h.Stat, Accept: h.Accept, Reject: h.Reject, Auth: h.Auth, Low: h.Low, High: h.High}
}

// RPCError is a reply without results. The fields are those of ReplyHeader.
type RPCError struct {
	Stat      ReplyStat
	Accept    AcceptStat
	Reject    RejectStat
	Auth      AuthStat
	Low, High uint32
}

func (e *RPCError) Error() string {
	if e.Stat == MsgDenied {
		if e.Reject == AuthError {
			return fmt.Sprintf("rpc: denied, authentication error %d", e.Auth)
		}
		return fmt.Sprintf("rpc: denied, the server has RPC versions %d to %d", e.Low, e.High)
	}
	switch e.Accept {
	case ProgUnavail:
		return "rpc: no such program"
	case ProgMismatch:
		return fmt.Sprintf("rpc: the server has versions %d to %d of the program", e.Low, e.High)
	case ProcUnavail:
		return "rpc: no such procedure"
	case GarbageArgs:
		return "rpc: the server can't decode the arguments"
	default:
		return "rpc: system error in the server"
	}
}
