package nfstest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/podnas/podnas/nfs/nfs3"
)

var readdirTests = []test{
	{"READDIR of 1000 entries", testReaddir},
	{"READDIRPLUS of 1000 entries", testReaddirplus},
	{"small directories", testReaddirSmall},
	{"bounds", testReaddirBounds},
	{"exactly as much as fits", testReaddirExact},
	{"dircount is a hint", testReaddirHint},
	{"cookie verifier", testCookieVerf},
	{"removal in between", testReaddirRemoval},
	{"creation in between", testReaddirCreation},
	{"going on after any entry", testReaddirCookies},
	{"attributes and handles", testReaddirplusEntries},
}

// page reads one page of a directory.
type page func(cookie uint64, verf [nfs3.CookieVerfSize]byte) nfs3.ReaddirRes

func (e *env) readdirPage(dir nfs3.FH, count uint32) page {
	return func(cookie uint64, verf [nfs3.CookieVerfSize]byte) nfs3.ReaddirRes {
		e.Helper()
		return e.readdir(nfs3.ReaddirArgs{Dir: dir, Cookie: cookie, CookieVerf: verf, Count: count})
	}
}

func (e *env) readdirplusPage(dir nfs3.FH, count uint32) page {
	return func(cookie uint64, verf [nfs3.CookieVerfSize]byte) nfs3.ReaddirRes {
		e.Helper()
		plus := e.readdirplus(nfs3.ReaddirplusArgs{Dir: dir, Cookie: cookie, CookieVerf: verf, DirCount: count, MaxCount: count})
		res := nfs3.ReaddirRes{Status: plus.Status, CookieVerf: plus.CookieVerf, EOF: plus.EOF}
		for _, entry := range plus.Entries {
			res.Entries = append(res.Entries, entry.Entry)
		}
		return res
	}
}

// listing is a directory that is read page by page.
type listing struct {
	page   page
	cookie uint64
	verf   [nfs3.CookieVerfSize]byte
	names  []string // without "." and ".."
	pages  int
	eof    bool
}

// next reads the next page and returns its names.
func (e *env) next(l *listing) []string {
	e.Helper()
	res := l.page(l.cookie, l.verf)
	e.ok("READDIR", res.Status)
	if len(res.Entries) == 0 && !res.EOF {
		e.Fatalf("page %d is empty, and not the last", l.pages)
	}
	start := len(l.names)
	for _, entry := range res.Entries {
		l.cookie = entry.Cookie
		if name := string(entry.Name); name != "." && name != ".." {
			l.names = append(l.names, name)
		}
	}
	l.verf = res.CookieVerf
	l.eof = res.EOF
	if l.pages++; l.pages > 10_000 {
		e.Fatal("the listing doesn't end")
	}
	return l.names[start:]
}

// fill makes n files and returns their names.
func (e *env) fill(dir nfs3.FH, n int) []string {
	e.Helper()
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("entry-%04d", i)
	}
	e.createAll(dir, names)
	return names
}

// sameNames checks that a listing has each of the names once.
func (e *env) sameNames(what string, got, want []string) {
	e.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if slices.Equal(got, want) {
		return
	}
	count := make(map[string]int)
	for _, name := range got {
		count[name]++
	}
	for _, name := range want {
		count[name]--
	}
	var wrong []string
	for name, n := range count {
		switch {
		case n < 0:
			wrong = append(wrong, name+" is missing")
		case n > 0:
			wrong = append(wrong, name+" is too many")
		}
	}
	slices.Sort(wrong)
	e.Errorf("%s: %d names, want %d: %q", what, len(got), len(want), wrong[:min(len(wrong), 10)])
}

func testReaddir(e *env) {
	names := e.fill(e.dir, 1000)
	for _, count := range []uint32{1024, 4096, 8192, 64 << 10, 1 << 20} {
		l := listing{page: e.readdirPage(e.dir, count)}
		for !l.eof {
			e.next(&l)
		}
		e.sameNames(fmt.Sprintf("count %d", count), l.names, names)
		if count <= 8192 && l.pages < 2 {
			e.Errorf("count %d: %d entries in one call", count, len(l.names))
		}
	}
}

func testReaddirplus(e *env) {
	names := e.fill(e.dir, 1000)
	for _, count := range []uint32{4096, 32 << 10, 1 << 20} {
		l := listing{page: e.readdirplusPage(e.dir, count)}
		for !l.eof {
			e.next(&l)
		}
		e.sameNames(fmt.Sprintf("maxcount %d", count), l.names, names)
	}
}

func testReaddirSmall(e *env) {
	for _, want := range [][]string{nil, {"a"}, {"a", "b"}} {
		dir := e.mkdir(e.dir, fmt.Sprint("dir", len(want)))
		for _, name := range want {
			e.create(dir, name)
		}
		for what, page := range map[string]page{
			"READDIR": e.readdirPage(dir, 8192), "READDIRPLUS": e.readdirplusPage(dir, 8192),
		} {
			l := listing{page: page}
			for !l.eof {
				e.next(&l)
			}
			e.sameNames(what, l.names, want)
		}
	}
	// If the directory itself is listed, it has its own id.
	id := e.attr(e.dir).FileID
	for _, entry := range e.readdir(nfs3.ReaddirArgs{Dir: e.dir, Count: 8192}).Entries {
		if string(entry.Name) == "." && entry.FileID != id {
			e.Errorf("dot has the id %d, want %d", entry.FileID, id)
		}
	}
}

// A result is no larger than requested, and a size too small for any entry is
// refused.
func testReaddirBounds(e *env) {
	e.fill(e.dir, 100)
	for _, count := range []uint32{1024, 2000, 4096} {
		// The count is the size of the result after the status.
		res := e.readdir(nfs3.ReaddirArgs{Dir: e.dir, Count: count})
		e.ok("READDIR", res.Status)
		if n := len(res.Append(nil)) - 4; n > int(count) {
			e.Errorf("READDIR: %d bytes, count %d", n, count)
		}
	}
	for _, count := range []uint32{4096, 5000, 8192} {
		res := e.readdirplus(nfs3.ReaddirplusArgs{Dir: e.dir, DirCount: count, MaxCount: count})
		e.ok("READDIRPLUS", res.Status)
		if n := len(res.Append(nil)) - 4; n > int(count) {
			e.Errorf("READDIRPLUS: %d bytes, maxcount %d", n, count)
		}
	}
	e.refused("READDIR of 1 byte", e.readdir(nfs3.ReaddirArgs{Dir: e.dir, Count: 1}).Status, nfs3.ErrTooSmall)
	e.refused("READDIRPLUS of 1 byte", e.readdirplus(nfs3.ReaddirplusArgs{Dir: e.dir, DirCount: 1, MaxCount: 1}).Status, nfs3.ErrTooSmall)
	// More than any reply can have.
	e.ok("READDIR of 4 GiB", e.readdir(nfs3.ReaddirArgs{Dir: e.dir, Count: 1<<32 - 1}).Status)
	e.ok("READDIRPLUS of 4 GiB", e.readdirplus(nfs3.ReaddirplusArgs{Dir: e.dir, DirCount: 1<<32 - 1, MaxCount: 1<<32 - 1}).Status)
}

// RFC 1813 section 3.3.16: count is the size of READDIR3resok, so the status is beside it.
func testReaddirExact(e *env) {
	e.need(FeatureExactResults)
	e.fill(e.dir, 5)
	all := e.readdir(nfs3.ReaddirArgs{Dir: e.dir, Count: 8192})
	e.ok("READDIR", all.Status)
	size := uint32(len(all.Append(nil)) - 4)
	for count, fits := range map[uint32]bool{size: true, size - 4: false} {
		if res := e.readdir(nfs3.ReaddirArgs{Dir: e.dir, Count: count}); res.EOF != fits || (len(res.Entries) == len(all.Entries)) != fits {
			e.Errorf("READDIR of %d bytes: %v, %d entries of %d, eof %v", count, res.Status, len(res.Entries), len(all.Entries), res.EOF)
		}
	}
}

// RFC 1813 section 3.3.17: dircount is what a client would like, and may be too small for a name.
func testReaddirHint(e *env) {
	e.need(FeatureCookies)
	want := len(e.fill(e.dir, 20))
	for _, count := range []uint32{1, 20, 60} {
		l := listing{page: func(cookie uint64, verf [nfs3.CookieVerfSize]byte) nfs3.ReaddirRes {
			plus := e.readdirplus(nfs3.ReaddirplusArgs{Dir: e.dir, Cookie: cookie, CookieVerf: verf, DirCount: count, MaxCount: 8192})
			res := nfs3.ReaddirRes{Status: plus.Status, CookieVerf: plus.CookieVerf, EOF: plus.EOF}
			for _, entry := range plus.Entries {
				res.Entries = append(res.Entries, entry.Entry)
			}
			return res
		}}
		for !l.eof {
			e.next(&l)
		}
		if len(l.names) != want {
			e.Errorf("dircount %d: %d names, want %d", count, len(l.names), want)
		}
	}
}

// Section 3.3.16: a cookie goes with the verifier that came with it.
func testCookieVerf(e *env) {
	e.need(FeatureCookies)
	e.fill(e.dir, 20)
	res := e.readdir(nfs3.ReaddirArgs{Dir: e.dir, Count: 300})
	e.ok("READDIR", res.Status)
	args := nfs3.ReaddirArgs{Dir: e.dir, Cookie: res.Entries[len(res.Entries)-1].Cookie, CookieVerf: res.CookieVerf, Count: 4096}
	e.ok("READDIR with the verifier", e.readdir(args).Status)
	args.CookieVerf[0] ^= 0x5a
	e.refused("READDIR with another verifier", e.readdir(args).Status, nfs3.ErrBadCookie)
}

// rm -r reads a page, removes its entries, and reads the next. No other entry may
// be missing or listed twice.
func testReaddirRemoval(e *env) {
	names := e.fill(e.dir, 1000)
	for what, page := range map[string]page{
		"READDIR": e.readdirPage(e.dir, 4096), "READDIRPLUS": e.readdirplusPage(e.dir, 16<<10),
	} {
		l := listing{page: page}
		for i := 0; !l.eof; i++ {
			got := e.next(&l)
			if i%2 == 0 {
				for _, name := range got {
					e.ok("REMOVE", e.remove(e.dir, name).Status)
				}
			}
		}
		e.sameNames(what, l.names, names)
		names = e.names(e.dir)
	}
}

func testReaddirCreation(e *env) {
	names := e.fill(e.dir, 500)
	l := listing{page: e.readdirPage(e.dir, 4096)}
	for i := 0; !l.eof; i++ {
		e.next(&l)
		e.create(e.dir, fmt.Sprintf("new-%04d", i))
	}
	// New entries may be listed or not, but only once.
	all := e.names(e.dir)
	seen := make(map[string]bool)
	for _, name := range l.names {
		if seen[name] {
			e.Errorf("%s is listed twice", name)
		}
		seen[name] = true
		if !slices.Contains(all, name) {
			e.Errorf("%s is listed, and was never there", name)
		}
	}
	for _, name := range names {
		if !seen[name] {
			e.Errorf("%s is missing", name)
		}
	}
}

func testReaddirCookies(e *env) {
	e.need(FeatureCookies)
	e.fill(e.dir, 20)
	res := e.readdir(nfs3.ReaddirArgs{Dir: e.dir, Count: 64 << 10})
	e.ok("READDIR", res.Status)
	if !res.EOF {
		e.Fatal("20 entries don't fit 64 KiB")
	}
	for i, entry := range res.Entries {
		if entry.Cookie == 0 {
			e.Errorf("%q has the cookie 0, which is the start", entry.Name)
			continue
		}
		rest := e.readdir(nfs3.ReaddirArgs{Dir: e.dir, Cookie: entry.Cookie, CookieVerf: res.CookieVerf, Count: 64 << 10})
		e.ok("READDIR", rest.Status)
		var got, want []string
		for _, r := range rest.Entries {
			got = append(got, string(r.Name))
		}
		for _, r := range res.Entries[i+1:] {
			want = append(want, string(r.Name))
		}
		e.sameNames(fmt.Sprintf("after %q", entry.Name), got, want)
	}
}

func testReaddirplusEntries(e *env) {
	dir := e.mkdir(e.dir, "dir")
	want := map[string]nfs3.FH{"file": e.create(dir, "file"), "sub": e.mkdir(dir, "sub"), "link": e.symlink(dir, "link", "file")}
	res := e.readdirplus(nfs3.ReaddirplusArgs{Dir: dir, DirCount: 8192, MaxCount: 8192})
	e.ok("READDIRPLUS", res.Status)
	for _, entry := range res.Entries {
		fh, ok := want[string(entry.Name)]
		if !ok {
			continue
		}
		attr := e.attr(fh)
		if entry.FileID != attr.FileID {
			e.Errorf("%s: id %d, want %d", entry.Name, entry.FileID, attr.FileID)
		}
		if entry.Attr.Present && entry.Attr.Attr != attr {
			e.Errorf("%s: attributes %+v, want %+v", entry.Name, entry.Attr.Attr, attr)
		}
		if entry.Object != nil && !bytes.Equal(entry.Object, fh) {
			e.Errorf("%s: handle %x, want %x", entry.Name, entry.Object, fh)
		}
	}
	// DirAttr has the directory's attributes.
	if res.DirAttr.Present && res.DirAttr.Attr.FileID != e.attr(dir).FileID {
		e.Errorf("the directory's attributes are %+v", res.DirAttr.Attr)
	}
}
