package nfsbench

import (
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/xdr"
)

const (
	listingPage = 64 << 10 // READDIRPLUS asks for this much
	fattrSize   = 84       // of fattr3
)

// page is the state after a READDIRPLUS.
type page struct {
	entries int // without . and ..
	cookie  uint64
	verf    [nfs3.CookieVerfSize]byte
	eof     bool
}

// readdirplus reads the page after another; the zero page is before the first. It
// counts the entries and, if visit isn't nil, calls it with each name, which
// aliases the lane's buffer. It does not return the entries, because a slice of a
// large directory's entries costs more than reading them.
func (l *lane) readdirplus(dir nfs3.FH, after page, visit func(name []byte, fileType nfs3.FType)) (page, error) {
	l.list = nfs3.ReaddirplusArgs{Dir: dir, Cookie: after.cookie, CookieVerf: after.verf, DirCount: listingPage, MaxCount: listingPage}
	d, err := l.nfs(nfs3.ProcReaddirplus, &l.list)
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
				visit(name, fileType)
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
