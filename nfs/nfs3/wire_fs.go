package nfs3

import "github.com/podnas/podnas/nfs/xdr"

// FsstatArgs is FSSTAT3args, FsinfoArgs FSINFO3args, PathconfArgs PATHCONF3args.
type (
	FsstatArgs   = HandleArgs
	FsinfoArgs   = HandleArgs
	PathconfArgs = HandleArgs
)

// FsstatRes is FSSTAT3res. All but Status and Attr are only set if OK.
type FsstatRes struct {
	Status                 Status
	Attr                   PostOpAttr
	TBytes, FBytes, ABytes uint64 // total, free, free for the caller
	TFiles, FFiles, AFiles uint64
	Invarsec               uint32 // how long this stays valid, in seconds
}

// Append appends the result.
func (r *FsstatRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	b = r.Attr.append(b)
	if r.Status != OK {
		return b
	}
	b = xdr.AppendUint64(b, r.TBytes)
	b = xdr.AppendUint64(b, r.FBytes)
	b = xdr.AppendUint64(b, r.ABytes)
	b = xdr.AppendUint64(b, r.TFiles)
	b = xdr.AppendUint64(b, r.FFiles)
	b = xdr.AppendUint64(b, r.AFiles)
	return xdr.AppendUint32(b, r.Invarsec)
}

// Decode consumes the result.
func (r *FsstatRes) Decode(d *xdr.Decoder) {
	*r = FsstatRes{Status: Status(d.Uint32())}
	r.Attr.decode(d)
	if r.Status != OK {
		return
	}
	r.TBytes = d.Uint64()
	r.FBytes = d.Uint64()
	r.ABytes = d.Uint64()
	r.TFiles = d.Uint64()
	r.FFiles = d.Uint64()
	r.AFiles = d.Uint64()
	r.Invarsec = d.Uint32()
}

// FsinfoRes is FSINFO3res. All but Status and Attr are only set if OK.
type FsinfoRes struct {
	Status                Status
	Attr                  PostOpAttr
	RtMax, RtPref, RtMult uint32 // READ: largest, preferred and best multiple of a size
	WtMax, WtPref, WtMult uint32 // WRITE
	DtPref                uint32 // READDIR
	MaxFileSize           uint64
	TimeDelta             Time
	Properties            uint32
}

// Append appends the result.
func (r *FsinfoRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	b = r.Attr.append(b)
	if r.Status != OK {
		return b
	}
	b = xdr.AppendUint32(b, r.RtMax)
	b = xdr.AppendUint32(b, r.RtPref)
	b = xdr.AppendUint32(b, r.RtMult)
	b = xdr.AppendUint32(b, r.WtMax)
	b = xdr.AppendUint32(b, r.WtPref)
	b = xdr.AppendUint32(b, r.WtMult)
	b = xdr.AppendUint32(b, r.DtPref)
	b = xdr.AppendUint64(b, r.MaxFileSize)
	b = r.TimeDelta.append(b)
	return xdr.AppendUint32(b, r.Properties)
}

// Decode consumes the result.
func (r *FsinfoRes) Decode(d *xdr.Decoder) {
	*r = FsinfoRes{Status: Status(d.Uint32())}
	r.Attr.decode(d)
	if r.Status != OK {
		return
	}
	r.RtMax = d.Uint32()
	r.RtPref = d.Uint32()
	r.RtMult = d.Uint32()
	r.WtMax = d.Uint32()
	r.WtPref = d.Uint32()
	r.WtMult = d.Uint32()
	r.DtPref = d.Uint32()
	r.MaxFileSize = d.Uint64()
	r.TimeDelta = decodeTime(d)
	r.Properties = d.Uint32()
}

// PathconfRes is PATHCONF3res. All but Status and Attr are only set if OK.
type PathconfRes struct {
	Status          Status
	Attr            PostOpAttr
	LinkMax         uint32
	NameMax         uint32
	NoTrunc         bool
	ChownRestricted bool
	CaseInsensitive bool
	CasePreserving  bool
}

// Append appends the result.
func (r *PathconfRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	b = r.Attr.append(b)
	if r.Status != OK {
		return b
	}
	b = xdr.AppendUint32(b, r.LinkMax)
	b = xdr.AppendUint32(b, r.NameMax)
	b = xdr.AppendBool(b, r.NoTrunc)
	b = xdr.AppendBool(b, r.ChownRestricted)
	b = xdr.AppendBool(b, r.CaseInsensitive)
	return xdr.AppendBool(b, r.CasePreserving)
}

// Decode consumes the result.
func (r *PathconfRes) Decode(d *xdr.Decoder) {
	*r = PathconfRes{Status: Status(d.Uint32())}
	r.Attr.decode(d)
	if r.Status != OK {
		return
	}
	r.LinkMax = d.Uint32()
	r.NameMax = d.Uint32()
	r.NoTrunc = d.Bool()
	r.ChownRestricted = d.Bool()
	r.CaseInsensitive = d.Bool()
	r.CasePreserving = d.Bool()
}
