package nfs3

import "github.com/podnas/podnas/nfs/xdr"

// ReaddirArgs is READDIR3args. Count bounds the size of the result in bytes.
type ReaddirArgs struct {
	Dir        FH
	Cookie     uint64
	CookieVerf [CookieVerfSize]byte
	Count      uint32
}

// Append appends the arguments.
func (a *ReaddirArgs) Append(b []byte) []byte {
	b = a.Dir.append(b)
	b = xdr.AppendUint64(b, a.Cookie)
	b = xdr.AppendFixed(b, a.CookieVerf[:])
	return xdr.AppendUint32(b, a.Count)
}

// Decode consumes the arguments.
func (a *ReaddirArgs) Decode(d *xdr.Decoder) {
	a.Dir = decodeFH(d)
	a.Cookie = d.Uint64()
	a.CookieVerf = decodeVerf(d)
	a.Count = d.Uint32()
}

// Entry is entry3. Name aliases the decoded record.
type Entry struct {
	FileID uint64
	Name   []byte
	Cookie uint64
}

// Append appends the entry as an element of a result's list.
func (e *Entry) Append(b []byte) []byte {
	b = xdr.AppendBool(b, true)
	b = xdr.AppendUint64(b, e.FileID)
	b = xdr.AppendOpaque(b, e.Name)
	return xdr.AppendUint64(b, e.Cookie)
}

func (e *Entry) decode(d *xdr.Decoder) {
	e.FileID = d.Uint64()
	e.Name = d.Opaque(MaxPath)
	e.Cookie = d.Uint64()
}

// ReaddirRes is READDIR3res.
type ReaddirRes = listRes[Entry, *Entry]

// ReaddirplusArgs is READDIRPLUS3args. DirCount bounds the size of the names,
// cookies and file ids in the result, MaxCount that of the whole result.
type ReaddirplusArgs struct {
	Dir        FH
	Cookie     uint64
	CookieVerf [CookieVerfSize]byte
	DirCount   uint32
	MaxCount   uint32
}

// Append appends the arguments.
func (a *ReaddirplusArgs) Append(b []byte) []byte {
	b = a.Dir.append(b)
	b = xdr.AppendUint64(b, a.Cookie)
	b = xdr.AppendFixed(b, a.CookieVerf[:])
	b = xdr.AppendUint32(b, a.DirCount)
	return xdr.AppendUint32(b, a.MaxCount)
}

// Decode consumes the arguments.
func (a *ReaddirplusArgs) Decode(d *xdr.Decoder) {
	a.Dir = decodeFH(d)
	a.Cookie = d.Uint64()
	a.CookieVerf = decodeVerf(d)
	a.DirCount = d.Uint32()
	a.MaxCount = d.Uint32()
}

// EntryPlus is entryplus3. Name and Object alias the decoded record.
type EntryPlus struct {
	Entry
	Attr   PostOpAttr
	Object FH // nil: not in the reply
}

// Append appends the entry as an element of a result's list.
func (e *EntryPlus) Append(b []byte) []byte {
	b = e.Entry.Append(b)
	b = e.Attr.append(b)
	return appendPostOpFH(b, e.Object)
}

func (e *EntryPlus) decode(d *xdr.Decoder) {
	e.Entry.decode(d)
	e.Attr.decode(d)
	e.Object = decodePostOpFH(d)
}

// ReaddirplusRes is READDIRPLUS3res.
type ReaddirplusRes = listRes[EntryPlus, *EntryPlus]

type listRes[E any, P interface {
	*E
	Append(b []byte) []byte
	decode(d *xdr.Decoder)
}] struct {
	Status     Status
	DirAttr    PostOpAttr
	CookieVerf [CookieVerfSize]byte // if OK, as the two that follow
	Entries    []E
	EOF        bool
}

// Append appends the result.
func (r *listRes[E, P]) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	b = r.DirAttr.append(b)
	if r.Status != OK {
		return b
	}
	b = xdr.AppendFixed(b, r.CookieVerf[:])
	for i := range r.Entries {
		b = P(&r.Entries[i]).Append(b)
	}
	b = xdr.AppendBool(b, false)
	return xdr.AppendBool(b, r.EOF)
}

// Decode consumes the result. The record's length bounds the number of entries.
func (r *listRes[E, P]) Decode(d *xdr.Decoder) {
	*r = listRes[E, P]{Status: Status(d.Uint32())}
	r.DirAttr.decode(d)
	if r.Status != OK {
		return
	}
	r.CookieVerf = decodeVerf(d)
	for d.Bool() {
		var e E
		P(&e).decode(d)
		r.Entries = append(r.Entries, e)
	}
	r.EOF = d.Bool()
}
