package nfsbench

import (
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/xdr"
)

// fattrSize is the size of fattr3.
const fattrSize = 84

// list is READDIRPLUS.
func (l *calls3) list(dir []byte, after page, visit func(name []byte, isDir bool)) (page, error) {
	l.page = nfs3.ReaddirplusArgs{Dir: dir, Cookie: after.cookie, CookieVerf: after.verf, DirCount: listingPage, MaxCount: listingPage}
	d, err := l.nfs(nfs3.ProcReaddirplus, &l.page)
	if err != nil {
		return page{}, err
	}
	next := page{cookie: after.cookie}
	status := nfs3.Status(d.Uint32())
	optional(&d, fattrSize)
	if status == nfs3.OK {
		copy(next.verf[:], d.Fixed(nfs3.CookieVerfSize))
		for d.Bool() {
			d.Uint64() // the file's number
			name := d.Opaque(nfs3.MaxPath)
			next.cookie = d.Uint64()
			fileType := nfs3.FType(0)
			if attr := optional(&d, fattrSize); attr != nil {
				a := xdr.NewDecoder(attr)
				fileType = nfs3.FType(a.Uint32())
			}
			if d.Bool() {
				d.Opaque(nfs3.FHSize)
			}
			if s := string(name); s == "." || s == ".." || d.Err() != nil {
				continue
			}
			next.entries++
			if visit != nil {
				visit(name, fileType == nfs3.TypeDir)
			}
		}
		next.eof = d.Bool()
	}
	return next, decoded("READDIRPLUS", &d, status)
}

// optional consumes n bytes that may be missing.
func optional(d *xdr.Decoder, n int) []byte {
	if !d.Bool() {
		return nil
	}
	return d.Fixed(n)
}
