package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

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

// AuthFlavor is auth_flavor of RFC 5531 section 8.2.
type AuthFlavor uint32

// The flavors of section 8.2 for a server of AUTH_SYS.
const (
	AuthNone  AuthFlavor = 0
	AuthSys   AuthFlavor = 1
	AuthShort AuthFlavor = 2
	AuthDH    AuthFlavor = 3
	AuthGSS   AuthFlavor = 6
)

// Limits of section 8.2 and appendix A.
const (
	MaxAuthBody    = 400
	MaxMachineName = 255
	MaxGroups      = 16
)

// Auth is opaque_auth: a credential or a verifier. The body aliases the record
// it was decoded from.
type Auth struct {
	Flavor AuthFlavor
	Body   []byte
}

// Append appends the credential or verifier.
func (a *Auth) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(a.Flavor))
	return xdr.AppendOpaque(b, a.Body)
}

// Decode consumes a credential or verifier.
func (a *Auth) Decode(d *xdr.Decoder) {
	a.Flavor = AuthFlavor(d.Uint32())
	a.Body = d.Opaque(MaxAuthBody)
}

// SysCred is the body of an AUTH_SYS credential (appendix A, authsys_parms).
type SysCred struct {
	Stamp       uint32
	MachineName []byte
	UID, GID    uint32
	groups      [MaxGroups]uint32
	ngroups     int
}

// Groups returns the supplementary groups. They alias c.
func (c *SysCred) Groups() []uint32 {
	return c.groups[:c.ngroups]
}

// SetGroups sets the supplementary groups. It drops those beyond MaxGroups, as
// clients do.
func (c *SysCred) SetGroups(gids ...uint32) {
	c.ngroups = copy(c.groups[:], gids)
}

// Append appends the credential's body, without flavor and length.
func (c *SysCred) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, c.Stamp)
	b = xdr.AppendOpaque(b, c.MachineName)
	b = xdr.AppendUint32(b, c.UID)
	b = xdr.AppendUint32(b, c.GID)
	b = xdr.AppendUint32(b, uint32(c.ngroups))
	for _, gid := range c.Groups() {
		b = xdr.AppendUint32(b, gid)
	}
	return b
}

// Decode consumes the credential's body. The machine name aliases the record.
func (c *SysCred) Decode(d *xdr.Decoder) {
	c.Stamp = d.Uint32()
	c.MachineName = d.Opaque(MaxMachineName)
	c.UID = d.Uint32()
	c.GID = d.Uint32()
	c.ngroups = d.Count(MaxGroups, 4)
	for i := range c.ngroups {
		c.groups[i] = d.Uint32()
	}
}

// Auth returns the encoded credential.
func (c *SysCred) Auth() Auth {
	return Auth{Flavor: AuthSys, Body: c.Append(nil)}
}

// ErrRecord is an invalid or too large record. The start of the next record is
// unknown, so the connection must end.
var ErrRecord = errors.New("rpc: bad record")

const (
	lastFragment = 1 << 31

	// A record may have any number of fragments, even empty ones, so their
	// number needs a limit, too. 1 MiB of data in this many is 256 bytes each;
	// no client sends smaller ones.
	maxFragments = 4096
)

// BeginRecord appends space for a record's mark to b. The caller appends the
// record and calls EndRecord.
func BeginRecord(b []byte) (buf []byte, at int) {
	return xdr.Reserve(b)
}

// EndRecord makes everything appended to b since BeginRecord returned at a
// record of one fragment (RFC 5531 section 11).
func EndRecord(b []byte, at int) {
	xdr.Patch(b, at, lastFragment|uint32(len(b)-at-4))
}

// ReadRecord reads one record of at most limit bytes and joins its fragments.
// It appends the record to buf, which may be empty with capacity from an earlier
// use, and returns the bytes even with an error, so that the caller keeps the
// buffer.
//
// The error is io.EOF if the stream ends before the record, ErrRecord if the
// record is larger than limit, else the reader's.
func ReadRecord(r io.Reader, buf []byte, limit int) ([]byte, error) {
	// The mark is read to where the data after it will be: a variable of its own
	// would be allocated for every record.
	buf = slices.Grow(buf, 4)
	mark := buf[len(buf) : len(buf)+4]
	if _, err := io.ReadFull(r, mark); err != nil {
		return buf, err
	}
	return JoinRecord(r, binary.BigEndian.Uint32(mark), buf, limit, heap{})
}

// Grower allocates memory for records.
type Grower interface {
	// Grow returns buf with capacity for size more bytes. more is whether
	// further fragments follow these.
	Grow(buf []byte, size int, more bool) ([]byte, error)
}

// heap allocates a record's memory without accounting.
type heap struct{}

func (heap) Grow(buf []byte, size int, _ bool) ([]byte, error) { return slices.Grow(buf, size), nil }

// JoinRecord is the rest of ReadRecord, after the record's first mark. memory
// allocates.
func JoinRecord(r io.Reader, mark uint32, buf []byte, limit int, memory Grower) (_ []byte, err error) {
	start := len(buf)
	for n := 1; ; n++ {
		size, more := int(mark&^lastFragment), mark&lastFragment == 0 // section 11 of RFC 5531
		if size > limit-(len(buf)-start) {
			return buf, fmt.Errorf("%w: larger than %d bytes", ErrRecord, limit)
		}
		if more && n == maxFragments {
			return buf, fmt.Errorf("%w: more than %d fragments", ErrRecord, maxFragments)
		}
		room := size
		if more {
			room += 4 // the next mark is read to behind the data
		}
		if buf, err = memory.Grow(buf, room, more); err != nil {
			return buf, err
		}
		end := len(buf) + size
		if _, err := io.ReadFull(r, buf[len(buf):len(buf)+room]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return buf, err
		}
		if !more {
			return buf[:end], nil
		}
		mark = binary.BigEndian.Uint32(buf[end : end+4])
		buf = buf[:end]
	}
}
