package nfs3

import "github.com/podnas/podnas/nfs/xdr"

// Time is nfstime3: seconds and nanoseconds since 1970.
type Time struct {
	Sec, Nsec uint32
}

func (t Time) append(b []byte) []byte {
	b = xdr.AppendUint32(b, t.Sec)
	return xdr.AppendUint32(b, t.Nsec)
}

func decodeTime(d *xdr.Decoder) Time {
	return Time{Sec: d.Uint32(), Nsec: d.Uint32()}
}

// SpecData is specdata3: a device's major and minor number.
type SpecData struct {
	Major, Minor uint32
}

func (s SpecData) append(b []byte) []byte {
	b = xdr.AppendUint32(b, s.Major)
	return xdr.AppendUint32(b, s.Minor)
}

func decodeSpecData(d *xdr.Decoder) SpecData {
	return SpecData{Major: d.Uint32(), Minor: d.Uint32()}
}

// Fattr is fattr3: a file's attributes.
type Fattr struct {
	Type                FType
	Mode                uint32
	Nlink               uint32
	UID, GID            uint32
	Size, Used          uint64
	Rdev                SpecData
	FSID, FileID        uint64
	Atime, Mtime, Ctime Time
}

func (a *Fattr) append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(a.Type))
	b = xdr.AppendUint32(b, a.Mode)
	b = xdr.AppendUint32(b, a.Nlink)
	b = xdr.AppendUint32(b, a.UID)
	b = xdr.AppendUint32(b, a.GID)
	b = xdr.AppendUint64(b, a.Size)
	b = xdr.AppendUint64(b, a.Used)
	b = a.Rdev.append(b)
	b = xdr.AppendUint64(b, a.FSID)
	b = xdr.AppendUint64(b, a.FileID)
	b = a.Atime.append(b)
	b = a.Mtime.append(b)
	return a.Ctime.append(b)
}

func (a *Fattr) decode(d *xdr.Decoder) {
	a.Type = FType(d.Uint32())
	a.Mode = d.Uint32()
	a.Nlink = d.Uint32()
	a.UID = d.Uint32()
	a.GID = d.Uint32()
	a.Size = d.Uint64()
	a.Used = d.Uint64()
	a.Rdev = decodeSpecData(d)
	a.FSID = d.Uint64()
	a.FileID = d.Uint64()
	a.Atime = decodeTime(d)
	a.Mtime = decodeTime(d)
	a.Ctime = decodeTime(d)
}

// PostOpAttr is post_op_attr: attributes after the operation, if the server
// has them.
type PostOpAttr struct {
	Present bool
	Attr    Fattr
}

func (p *PostOpAttr) append(b []byte) []byte {
	b = xdr.AppendBool(b, p.Present)
	if p.Present {
		b = p.Attr.append(b)
	}
	return b
}

func (p *PostOpAttr) decode(d *xdr.Decoder) {
	*p = PostOpAttr{Present: d.Bool()}
	if p.Present {
		p.Attr.decode(d)
	}
}

// PreOpAttr is pre_op_attr: attributes before the operation that show whether an
// object changed, if the server has them (wcc_attr).
type PreOpAttr struct {
	Present      bool
	Size         uint64
	Mtime, Ctime Time
}

func (p *PreOpAttr) append(b []byte) []byte {
	b = xdr.AppendBool(b, p.Present)
	if p.Present {
		b = xdr.AppendUint64(b, p.Size)
		b = p.Mtime.append(b)
		b = p.Ctime.append(b)
	}
	return b
}

func (p *PreOpAttr) decode(d *xdr.Decoder) {
	*p = PreOpAttr{Present: d.Bool()}
	if p.Present {
		p.Size = d.Uint64()
		p.Mtime = decodeTime(d)
		p.Ctime = decodeTime(d)
	}
}

// WccData is wcc_data: weak cache consistency.
type WccData struct {
	Before PreOpAttr
	After  PostOpAttr
}

func (w *WccData) append(b []byte) []byte {
	b = w.Before.append(b)
	return w.After.append(b)
}

func (w *WccData) decode(d *xdr.Decoder) {
	w.Before.decode(d)
	w.After.decode(d)
}

// SetUint32 is set_mode3, set_uid3 or set_gid3.
type SetUint32 struct {
	Set   bool
	Value uint32
}

func (s SetUint32) append(b []byte) []byte {
	b = xdr.AppendBool(b, s.Set)
	if s.Set {
		b = xdr.AppendUint32(b, s.Value)
	}
	return b
}

func decodeSetUint32(d *xdr.Decoder) (s SetUint32) {
	if s.Set = d.Bool(); s.Set {
		s.Value = d.Uint32()
	}
	return s
}

// SetUint64 is set_size3.
type SetUint64 struct {
	Set   bool
	Value uint64
}

func (s SetUint64) append(b []byte) []byte {
	b = xdr.AppendBool(b, s.Set)
	if s.Set {
		b = xdr.AppendUint64(b, s.Value)
	}
	return b
}

func decodeSetUint64(d *xdr.Decoder) (s SetUint64) {
	if s.Set = d.Bool(); s.Set {
		s.Value = d.Uint64()
	}
	return s
}

// SetTime is set_atime or set_mtime. Time is for SetToClientTime.
type SetTime struct {
	How  TimeHow
	Time Time
}

func (s SetTime) append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(s.How))
	if s.How == SetToClientTime {
		b = s.Time.append(b)
	}
	return b
}

func decodeSetTime(d *xdr.Decoder) (s SetTime) {
	s.How = TimeHow(d.Uint32())
	switch s.How {
	case DontChange, SetToServerTime:
	case SetToClientTime:
		s.Time = decodeTime(d)
	default:
		d.Fail(xdr.ErrValue)
	}
	return s
}

// Sattr is sattr3: the attributes to set.
type Sattr struct {
	Mode, UID, GID SetUint32
	Size           SetUint64
	Atime, Mtime   SetTime
}

func (s *Sattr) append(b []byte) []byte {
	b = s.Mode.append(b)
	b = s.UID.append(b)
	b = s.GID.append(b)
	b = s.Size.append(b)
	b = s.Atime.append(b)
	return s.Mtime.append(b)
}

func (s *Sattr) decode(d *xdr.Decoder) {
	s.Mode = decodeSetUint32(d)
	s.UID = decodeSetUint32(d)
	s.GID = decodeSetUint32(d)
	s.Size = decodeSetUint64(d)
	s.Atime = decodeSetTime(d)
	s.Mtime = decodeSetTime(d)
}

// GetattrArgs is GETATTR3args.
type GetattrArgs = HandleArgs

// GetattrRes is GETATTR3res.
type GetattrRes struct {
	Status Status
	Attr   Fattr
}

// Append appends the result.
func (r *GetattrRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = r.Attr.append(b)
	}
	return b
}

// Decode consumes the result.
func (r *GetattrRes) Decode(d *xdr.Decoder) {
	*r = GetattrRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.Attr.decode(d)
	}
}

// SetattrArgs is SETATTR3args. If Guarded, the object's ctime must still be
// Guard (sattrguard3).
type SetattrArgs struct {
	Object  FH
	Attr    Sattr
	Guarded bool
	Guard   Time
}

// Append appends the arguments.
func (a *SetattrArgs) Append(b []byte) []byte {
	b = a.Object.append(b)
	b = a.Attr.append(b)
	b = xdr.AppendBool(b, a.Guarded)
	if a.Guarded {
		b = a.Guard.append(b)
	}
	return b
}

// Decode consumes the arguments.
func (a *SetattrArgs) Decode(d *xdr.Decoder) {
	*a = SetattrArgs{Object: decodeFH(d)}
	a.Attr.decode(d)
	if a.Guarded = d.Bool(); a.Guarded {
		a.Guard = decodeTime(d)
	}
}

// SetattrRes is SETATTR3res.
type SetattrRes = WccRes
