package nfstest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

var ioTests = []test{
	{"odd offsets", testOddOffsets},
	{"random", testRandomIO},
	{"past the end", testReadPastEnd},
	{"empty", testEmptyIO},
	{"sparse", testSparse},
	{"past 4 GiB", testLargeOffsets},
	{"offsets that overflow", testOffsetOverflow},
	{"past the end of any file", testReadPastAny},
	{"the largest file", testLargestFile},
	{"largest", testLargestIO},
	{"count unlike the data", testWriteCount},
	{"not a file", testIONotFile},
	{"stability", testStability},
	{"COMMIT", testCommit},
	{"unstable data and a restart", testVerifierAfterRestart},
	{"seen on the disk", testIODisk},
}

func testOddOffsets(e *env) {
	file := e.create(e.dir, "file")
	var want []byte
	for i, n := range []int{1, 2, 3, 4, 5, 4095, 4096, 4097, 7, 65536, 13} {
		data := pattern(i, n)
		e.write(file, uint64(len(want)), data)
		want = append(want, data...)
	}
	e.content(file, want)
	for _, tt := range []struct{ offset, n int }{{0, 1}, {1, 1}, {3, 4096}, {4095, 2}, {4097, 8191}, {len(want) - 1, 1}} {
		if got := e.read(file, uint64(tt.offset), tt.n); !bytes.Equal(got, want[tt.offset:tt.offset+tt.n]) {
			e.Errorf("READ of %d bytes at %d: %s", tt.n, tt.offset, abbreviate(got))
		}
	}
}

// Any mix of writes, truncations and reads has the same effect as on a slice.
func testRandomIO(e *env) {
	const limit = 300_000
	seed := uint64(20260101)
	r := rand.New(rand.NewPCG(seed, 1))
	file := e.create(e.dir, "file")
	var want []byte
	resize := func(n int) {
		if n > len(want) {
			want = append(want, make([]byte, n-len(want))...)
		}
	}
	for i := range 300 {
		offset, n := r.IntN(limit), 1+r.IntN(20_000)
		switch r.IntN(5) {
		case 0, 1:
			data := pattern(i, n)
			e.write(file, uint64(offset), data)
			resize(offset + n)
			copy(want[offset:], data)
		case 2:
			e.ok("SETATTR", e.setattr(file, size(uint64(offset))))
			resize(offset)
			want = want[:offset:offset]
		default:
			got := e.read(file, uint64(offset), n)
			from := min(offset, len(want))
			if !bytes.Equal(got, want[from:min(offset+n, len(want))]) {
				e.Fatalf("step %d: READ of %d bytes at %d: %s", i, n, offset, abbreviate(got))
			}
		}
	}
	e.content(file, want)
}

func testReadPastEnd(e *env) {
	file := e.create(e.dir, "file")
	e.write(file, 0, []byte("0123456789"))
	for _, tt := range []struct {
		offset uint64
		count  uint32
		data   string
		eof    bool
	}{
		{0, 5, "01234", false},
		{0, 10, "0123456789", true},
		{0, 11, "0123456789", true},
		{0, 1 << 20, "0123456789", true},
		{9, 1, "9", true},
		{9, 100, "9", true},
		{10, 1, "", true},
		{11, 100, "", true},
		{1 << 40, 100, "", true},
	} {
		res := e.readRes(file, tt.offset, tt.count)
		e.ok("READ", res.Status)
		if string(res.Data) != tt.data || int(res.Count) != len(tt.data) || res.EOF != tt.eof {
			e.Errorf("READ of %d bytes at %d: %q, count %d, eof %v; want %q, eof %v",
				tt.count, tt.offset, res.Data, res.Count, res.EOF, tt.data, tt.eof)
		}
	}
}

func testEmptyIO(e *env) {
	file := e.create(e.dir, "file")
	res := e.readRes(file, 0, 100)
	if res.Status != nfs3.OK || len(res.Data) != 0 || !res.EOF {
		e.Errorf("READ of an empty file: %v, %q, eof %v", res.Status, res.Data, res.EOF)
	}
	e.write(file, 0, []byte("0123456789"))
	res = e.readRes(file, 5, 0)
	if res.Status != nfs3.OK || len(res.Data) != 0 || res.EOF {
		e.Errorf("READ of nothing: %v, %q, eof %v", res.Status, res.Data, res.EOF)
	}
	w := e.writeRes(file, 100, nfs3.Unstable, nil)
	if w.Status != nfs3.OK || w.Count != 0 {
		e.Errorf("WRITE of nothing: %v, count %d", w.Status, w.Count)
	}
	e.content(file, []byte("0123456789"))
}

func testSparse(e *env) {
	file := e.create(e.dir, "file")
	e.write(file, 100_000, []byte("end"))
	want := append(make([]byte, 100_000), "end"...)
	e.content(file, want)
	e.write(file, 50_001, []byte("middle"))
	copy(want[50_001:], "middle")
	e.content(file, want)
}

func testLargeOffsets(e *env) {
	file := e.create(e.dir, "file")
	for _, offset := range []uint64{1<<31 - 1, 1<<32 - 3, 5<<30 + 3, 1 << 40} {
		data := fmt.Appendf(nil, "data at %d", offset)
		e.write(file, offset, data)
		if got := e.attr(file).Size; got != offset+uint64(len(data)) {
			e.Errorf("size %d, want %d", got, offset+uint64(len(data)))
		}
	}
	for _, offset := range []uint64{1<<31 - 1, 1<<32 - 3, 5<<30 + 3, 1 << 40} {
		want := fmt.Appendf(nil, "data at %d", offset)
		if got := e.read(file, offset, len(want)); !bytes.Equal(got, want) {
			e.Errorf("READ at %d: %q", offset, got)
		}
	}
}

// Offsets that overflow a signed integer, alone or with the count added, are
// refused, and the server survives.
func testOffsetOverflow(e *env) {
	file := e.create(e.dir, "file")
	e.write(file, 0, []byte("content"))
	for _, offset := range []uint64{1<<63 - 1, 1 << 63, 1<<64 - 1} {
		if res := e.readRes(file, offset, 100); res.Status == nfs3.OK && (len(res.Data) != 0 || !res.EOF) {
			e.Errorf("READ at %d: %q, eof %v", offset, res.Data, res.EOF)
		}
		e.refused(fmt.Sprintf("WRITE at %d", offset), e.writeRes(file, offset, nfs3.Unstable, []byte("xx")).Status, nfs3.ErrFBig, nfs3.ErrInval)
		e.commit(file, offset, 100) // any reply is valid
	}
	e.content(file, []byte("content"))
}

// Section 3.3.6: past the end there are no bytes, also where no file can have any.
func testReadPastAny(e *env) {
	e.need(FeatureErrorCodes)
	file := e.create(e.dir, "file")
	e.write(file, 0, []byte("content"))
	for _, offset := range []uint64{7, 1 << 40, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		if res := e.readRes(file, offset, 100); res.Status != nfs3.OK || len(res.Data) != 0 || !res.EOF {
			e.Errorf("READ at %d: %v, %q, eof %v", offset, res.Status, res.Data, res.EOF)
		}
	}
}

// A READ that begins before the end of the largest file gets the bytes from where it begins.
func testLargestFile(e *env) {
	e.need(FeatureErrorCodes) // for a size that is too large
	file := e.create(e.dir, "file")
	largest := uint64(1<<63 - 1)
	for e.setattr(file, size(largest)) != nfs3.OK { // as on ext4
		if largest >>= 1; largest < 1<<40 {
			e.Fatal("no file of 2^40 bytes can be made")
		}
	}
	e.write(file, largest-3, []byte("end"))
	for _, from := range []uint64{1, 3, 4095, 4096} {
		res := e.readRes(file, largest-from, 4096)
		want := append(make([]byte, 4096), "end"...)
		want = want[uint64(len(want))-from:]
		if res.Status != nfs3.OK || !bytes.Equal(res.Data, want) || !res.EOF {
			e.Errorf("READ at %d before the end: %v, %q, eof %v", from, res.Status, abbreviate(res.Data), res.EOF)
		}
	}
}

// The server handles the sizes that FSINFO prefers in one call.
func testLargestIO(e *env) {
	info := e.fsinfo(e.root)
	e.ok("FSINFO", info.Status)
	const most = 1 << 20 // more is not needed for correctness
	file := e.create(e.dir, "file")
	data := pattern(1, int(min(info.WtPref, most)))
	w := e.writeRes(file, 0, nfs3.Unstable, data)
	e.ok("WRITE", w.Status)
	if int(w.Count) != len(data) {
		e.Errorf("WRITE of wtpref, %d bytes, wrote %d", len(data), w.Count)
	}
	e.content(file, data)
	r := e.readRes(file, 0, min(info.RtPref, most))
	e.ok("READ", r.Status)
	if want := min(len(data), int(info.RtPref)); len(r.Data) != want {
		e.Errorf("READ of rtpref, %d bytes, read %d", want, len(r.Data))
	}
	// A READ of more than the maximum gets what there is.
	r = e.readRes(file, 0, 1<<32-1)
	e.ok("READ of 4 GiB", r.Status)
	if !bytes.HasPrefix(data, r.Data) || len(r.Data) == 0 {
		e.Errorf("READ of 4 GiB read %d bytes", len(r.Data))
	}
}

// A WRITE whose count isn't the length of its data is refused, or writes no more
// than either.
func testWriteCount(e *env) {
	file := e.create(e.dir, "file")
	for _, tt := range []struct {
		count uint32
		data  string
	}{{4, "0123456789"}, {100, "0123456789"}, {1<<32 - 1, "0123456789"}, {10, ""}} {
		e.ok("SETATTR", e.setattr(file, size(0)))
		args := &nfs3.WriteArgs{File: file, Count: tt.count, Stable: nfs3.FileSync, Data: []byte(tt.data)}
		b, err := e.client.nfs.Do(e.Context(), e.nfsHeader(nfs3.ProcWrite), args)
		var rpcErr *rpc.RPCError
		if errors.As(err, &rpcErr) {
			e.content(file, nil)
			continue
		}
		e.answered("WRITE", err)
		d := xdr.NewDecoder(b)
		var res nfs3.WriteRes
		res.Decode(&d)
		e.answered("WRITE", d.Finish())
		want := tt.data[:min(len(tt.data), int(tt.count))]
		if res.Status != nfs3.OK {
			want = ""
		} else if int(res.Count) != len(want) {
			e.Errorf("count %d, %d bytes of data: wrote %d", tt.count, len(tt.data), res.Count)
		}
		e.content(file, []byte(want))
	}
}

func testIONotFile(e *env) {
	for name, fh := range map[string]nfs3.FH{"a directory": e.mkdir(e.dir, "dir"), "a symbolic link": e.symlink(e.dir, "link", "dir")} {
		e.refused("READ of "+name, e.readRes(fh, 0, 10).Status, nfs3.ErrInval, nfs3.ErrIsDir)
		e.refused("WRITE of "+name, e.writeRes(fh, 0, nfs3.Unstable, []byte("x")).Status, nfs3.ErrInval, nfs3.ErrIsDir)
	}
}

// A WRITE gets at least the stability that it requests.
func testStability(e *env) {
	file := e.create(e.dir, "file")
	var verf [nfs3.WriteVerfSize]byte
	for i, stable := range []nfs3.StableHow{nfs3.Unstable, nfs3.DataSync, nfs3.FileSync} {
		res := e.writeRes(file, uint64(i), stable, []byte{'x'})
		e.ok("WRITE", res.Status)
		if res.Committed < stable {
			e.Errorf("asked for %d, got %d", stable, res.Committed)
		}
		if i > 0 && res.Verf != verf {
			e.Errorf("verifier %x, then %x", verf, res.Verf)
		}
		verf = res.Verf
	}
	res := e.commit(file, 0, 0)
	e.ok("COMMIT", res.Status)
	if res.Verf != verf {
		e.Errorf("verifier %x, COMMIT's is %x", verf, res.Verf)
	}
	e.content(file, []byte("xxx"))
}

func testCommit(e *env) {
	file := e.create(e.dir, "file")
	e.write(file, 0, pattern(1, 100_000))
	for _, tt := range []struct {
		offset uint64
		count  uint32
	}{{0, 0}, {0, 100_000}, {5000, 1}, {50_000, 0}, {1 << 40, 100}} {
		e.ok("COMMIT", e.commit(file, tt.offset, tt.count).Status)
	}
	e.content(file, pattern(1, 100_000))
}

// A client keeps unstable data until a COMMIT returns the verifier of the WRITE.
// After a restart the verifier must differ, or the data be safe.
func testVerifierAfterRestart(e *env) {
	e.needRestart()
	file := e.create(e.dir, "file")
	written := e.writeRes(file, 0, nfs3.Unstable, []byte("content"))
	e.ok("WRITE", written.Status)
	e.target.Restart(e.T)
	e.connect()
	committed := e.commit(file, 0, 0)
	e.ok("COMMIT", committed.Status)
	if written.Committed == nfs3.Unstable && committed.Verf == written.Verf {
		e.Errorf("the verifier is %x as before the restart", committed.Verf)
	}
}

func testIODisk(e *env) {
	e.needDisk()
	file := e.create(e.dir, "file")
	e.write(file, 0, []byte("by the client"))
	got, err := os.ReadFile(e.path("file"))
	if err != nil || string(got) != "by the client" {
		e.Errorf("on the disk: %q, %v", got, err)
	}
	e.need(FeatureDiskChanges)
	if err := os.WriteFile(e.path("file"), []byte("on the disk"), 0); err != nil {
		e.Fatal(err)
	}
	e.content(file, []byte("on the disk"))
}
