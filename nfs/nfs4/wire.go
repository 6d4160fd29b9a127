package nfs4

import (
	"math"

	"github.com/podnas/podnas/nfs/xdr"
)

// FH is nfs_fh4, a file handle of at most FHSize bytes.
type FH []byte

func (fh FH) append(b []byte) []byte {
	return xdr.AppendOpaque(b, fh)
}

func decodeFH(d *xdr.Decoder) FH {
	return d.Opaque(FHSize)
}

// Verifier is verifier4.
type Verifier [VerifierSize]byte

func decodeVerifier(d *xdr.Decoder) (v Verifier) {
	copy(v[:], d.Fixed(len(v)))
	return v
}

// Time is nfstime4: seconds and nanoseconds since 1970.
type Time struct {
	Sec  int64
	Nsec uint32
}

func (t Time) append(b []byte) []byte {
	b = xdr.AppendUint64(b, uint64(t.Sec))
	return xdr.AppendUint32(b, t.Nsec)
}

func decodeTime(d *xdr.Decoder) Time {
	return Time{Sec: int64(d.Uint64()), Nsec: d.Uint32()}
}

// Stateid is stateid4. The zero value is the anonymous stateid.
type Stateid struct {
	Seqid uint32
	Other [OtherSize]byte
}

// The special stateids of RFC 8881 section 8.2.3, but for the anonymous one.

// CurrentStateid stands for the stateid of the operation before.
func CurrentStateid() Stateid {
	return Stateid{Seqid: 1}
}

// BypassStateid is for a READ that pays no heed to locks.
func BypassStateid() Stateid {
	const f = 0xff
	return Stateid{Seqid: 0xffff_ffff, Other: [OtherSize]byte{f, f, f, f, f, f, f, f, f, f, f, f}}
}

// InvalidStateid is what CLOSE returns, section 18.2.4: no operation accepts it.
func InvalidStateid() Stateid {
	return Stateid{Seqid: 0xffff_ffff}
}

// IsSpecial reports whether it is the anonymous or the bypass stateid: that of a READ or WRITE that names no open.
func (s Stateid) IsSpecial() bool { return s == Stateid{} || s == BypassStateid() }

func (s *Stateid) append(b []byte) []byte {
	b = xdr.AppendUint32(b, s.Seqid)
	return xdr.AppendFixed(b, s.Other[:])
}

func (s *Stateid) decode(d *xdr.Decoder) {
	s.Seqid = d.Uint32()
	s.Other = [OtherSize]byte{}
	copy(s.Other[:], d.Fixed(OtherSize))
}

// ChangeInfo is change_info4: a directory's change attribute before and after.
type ChangeInfo struct {
	Atomic        bool
	Before, After uint64
}

func (c *ChangeInfo) append(b []byte) []byte {
	b = xdr.AppendBool(b, c.Atomic)
	b = xdr.AppendUint64(b, c.Before)
	return xdr.AppendUint64(b, c.After)
}

func (c *ChangeInfo) decode(d *xdr.Decoder) {
	c.Atomic = d.Bool()
	c.Before = d.Uint64()
	c.After = d.Uint64()
}

// StateOwner is state_owner4: open_owner4 and lock_owner4. In version 4.1 the server
// ignores ClientID, which is the session's.
type StateOwner struct {
	ClientID uint64
	Owner    []byte
}

func (o *StateOwner) append(b []byte) []byte {
	b = xdr.AppendUint64(b, o.ClientID)
	return xdr.AppendOpaque(b, o.Owner)
}

func (o *StateOwner) decode(d *xdr.Decoder) {
	o.ClientID = d.Uint64()
	o.Owner = d.Opaque(OpaqueLimit)
}

// Append appends the operation's number, which precedes its arguments and its result.
func (op OpNum) Append(b []byte) []byte {
	return xdr.AppendUint32(b, uint32(op))
}

// Decode consumes the number. Any value is well-formed: the reply to one that the
// protocol lacks is OpIllegal with ErrOpIllegal.
func (op *OpNum) Decode(d *xdr.Decoder) {
	*op = OpNum(d.Uint32())
}

// CompoundArgs is the head of COMPOUND4args; NumOps operations follow. NumOps is as the
// client sent it, and may be more than the record holds. So is Tag, which can be longer than MaxTag.
type CompoundArgs struct {
	Tag          []byte
	MinorVersion uint32
	NumOps       uint32
}

// Append appends the head.
func (a *CompoundArgs) Append(b []byte) []byte {
	b = xdr.AppendOpaque(b, a.Tag)
	b = xdr.AppendUint32(b, a.MinorVersion)
	return xdr.AppendUint32(b, a.NumOps)
}

// Decode consumes the head.
func (a *CompoundArgs) Decode(d *xdr.Decoder) {
	a.Tag = d.Opaque(math.MaxInt32)
	a.MinorVersion = d.Uint32()
	a.NumOps = d.Uint32()
}

// CompoundRes is the head of COMPOUND4res and CB_COMPOUND4res; the results of NumOps
// operations follow. Status is that of the last one.
type CompoundRes struct {
	Status Status
	Tag    []byte
	NumOps uint32
}

// Append appends the head.
func (r *CompoundRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	b = xdr.AppendOpaque(b, r.Tag)
	return xdr.AppendUint32(b, r.NumOps)
}

// Patch sets the status and the number of operations in a head that Append appended at
// an offset of b, with the same Tag.
func (r *CompoundRes) Patch(b []byte, at int) {
	xdr.Patch(b, at, uint32(r.Status))
	xdr.Patch(b, at+4+4+len(r.Tag)+xdr.Pad(len(r.Tag)), r.NumOps)
}

// Decode consumes the head.
func (r *CompoundRes) Decode(d *xdr.Decoder) {
	r.Status = Status(d.Uint32())
	r.Tag = d.Opaque(MaxTag)
	r.NumOps = d.Uint32()
}

// StatusRes is the result of an operation that returns its status alone.
type StatusRes struct {
	Status Status
}

// Append appends the result.
func (r *StatusRes) Append(b []byte) []byte {
	return xdr.AppendUint32(b, uint32(r.Status))
}

// Decode consumes the result.
func (r *StatusRes) Decode(d *xdr.Decoder) {
	r.Status = Status(d.Uint32())
}

// StateidArgs are the arguments of an operation that takes a stateid alone.
type StateidArgs struct {
	Stateid Stateid
}

// Append appends the arguments.
func (a *StateidArgs) Append(b []byte) []byte {
	return a.Stateid.append(b)
}

// Decode consumes the arguments.
func (a *StateidArgs) Decode(d *xdr.Decoder) {
	a.Stateid.decode(d)
}

// StateidRes is the result of an operation that returns a stateid alone.
type StateidRes struct {
	Status  Status
	Stateid Stateid // if OK
}

// Append appends the result.
func (r *StateidRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = r.Stateid.append(b)
	}
	return b
}

// Decode consumes the result.
func (r *StateidRes) Decode(d *xdr.Decoder) {
	*r = StateidRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.Stateid.decode(d)
	}
}

// NameArgs are the arguments of an operation that takes a name in the current directory
// alone.
type NameArgs struct {
	Name []byte
}

// Append appends the arguments.
func (a *NameArgs) Append(b []byte) []byte {
	return xdr.AppendOpaque(b, a.Name)
}

// Decode consumes the arguments.
func (a *NameArgs) Decode(d *xdr.Decoder) {
	a.Name = d.Opaque(MaxPath)
}

// ChangeRes is the result of an operation that returns a change of the current directory
// alone.
type ChangeRes struct {
	Status Status
	Change ChangeInfo // if OK
}

// Append appends the result.
func (r *ChangeRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = r.Change.append(b)
	}
	return b
}

// Decode consumes the result.
func (r *ChangeRes) Decode(d *xdr.Decoder) {
	*r = ChangeRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.Change.decode(d)
	}
}

// ClientIDArgs are the arguments of an operation that takes a client id alone.
type ClientIDArgs struct {
	ClientID uint64
}

// Append appends the arguments.
func (a *ClientIDArgs) Append(b []byte) []byte {
	return xdr.AppendUint64(b, a.ClientID)
}

// Decode consumes the arguments.
func (a *ClientIDArgs) Decode(d *xdr.Decoder) {
	a.ClientID = d.Uint64()
}
