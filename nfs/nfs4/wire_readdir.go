package nfs4

import "github.com/podnas/podnas/nfs/xdr"

// ReaddirArgs is READDIR4args. DirCount bounds the size of the names and cookies in the
// result, as a hint; MaxCount is the maximum of ReaddirRes without its status.
type ReaddirArgs struct {
	Cookie     uint64
	CookieVerf Verifier
	DirCount   uint32
	MaxCount   uint32
	Request    Bitmap
}

// Append appends the arguments.
func (a *ReaddirArgs) Append(b []byte) []byte {
	b = xdr.AppendUint64(b, a.Cookie)
	b = xdr.AppendFixed(b, a.CookieVerf[:])
	b = xdr.AppendUint32(b, a.DirCount)
	b = xdr.AppendUint32(b, a.MaxCount)
	return a.Request.append(b)
}

// Decode consumes the arguments.
func (a *ReaddirArgs) Decode(d *xdr.Decoder) {
	a.Cookie = d.Uint64()
	a.CookieVerf = decodeVerifier(d)
	a.DirCount = d.Uint32()
	a.MaxCount = d.Uint32()
	a.Request.decodeKnown(d)
}

// Entry is entry4. Name and Attr alias the decoded record.
type Entry struct {
	Cookie uint64
	Name   []byte
	Attr   Fattr
}

// Append appends the entry as an element of a result's list.
func (e *Entry) Append(b []byte) []byte {
	b = appendEntryHead(b, e.Cookie, e.Name)
	return e.Attr.append(b)
}

func (e *Entry) decode(d *xdr.Decoder) {
	e.Cookie = d.Uint64()
	e.Name = d.Opaque(MaxPath)
	e.Attr.decode(d)
}

// AppendEntry appends an entry as an element of a result's list, with those of its
// attributes that are wanted.
func AppendEntry(b []byte, cookie uint64, name []byte, attrs *Attrs, wanted Bitmap) []byte {
	b = appendEntryHead(b, cookie, name)
	return attrs.Append(b, wanted)
}

func appendEntryHead(b []byte, cookie uint64, name []byte) []byte {
	b = xdr.AppendBool(b, true)
	b = xdr.AppendUint64(b, cookie)
	return xdr.AppendOpaque(b, name)
}

// ReaddirRes is READDIR4res.
type ReaddirRes struct {
	Status     Status
	CookieVerf Verifier // if OK, as the two that follow
	Entries    []Entry
	EOF        bool
}

// Append appends the result.
func (r *ReaddirRes) Append(b []byte) []byte {
	b = r.AppendHead(b)
	if r.Status != OK {
		return b
	}
	for i := range r.Entries {
		b = r.Entries[i].Append(b)
	}
	return r.AppendTail(b)
}

// AppendHead appends what precedes the entries. If Status is not OK, it is everything.
func (r *ReaddirRes) AppendHead(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status == OK {
		b = xdr.AppendFixed(b, r.CookieVerf[:])
	}
	return b
}

// AppendTail appends what follows the entries: 8 bytes.
func (r *ReaddirRes) AppendTail(b []byte) []byte {
	b = xdr.AppendBool(b, false)
	return xdr.AppendBool(b, r.EOF)
}

// Decode consumes the result. The record's length bounds the number of entries.
func (r *ReaddirRes) Decode(d *xdr.Decoder) {
	*r = ReaddirRes{Status: Status(d.Uint32())}
	if r.Status != OK {
		return
	}
	r.CookieVerf = decodeVerifier(d)
	for d.Bool() {
		var e Entry
		e.decode(d)
		r.Entries = append(r.Entries, e)
	}
	r.EOF = d.Bool()
}
