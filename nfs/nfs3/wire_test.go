package nfs3

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/podnas/podnas/nfs/xdr"
)

type message interface {
	Append(b []byte) []byte
	Decode(d *xdr.Decoder)
}

// wireTest is a message and its bytes, written by hand from RFC 1813.
type wireTest struct {
	name  string
	msg   message
	bytes []byte
}

// Pieces that the tests of the families put together.
var (
	fh      = FH{0xf1, 0xf2, 0xf3, 0xf4, 0xf5}
	fhBytes = []byte{0, 0, 0, 5, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0, 0, 0}

	where      = DirOpArgs{Dir: fh, Name: []byte("name")}
	whereBytes = slices.Concat(fhBytes, []byte{0, 0, 0, 4, 'n', 'a', 'm', 'e'})

	attr = Fattr{
		Type: TypeReg, Mode: 0o4755, Nlink: 2, UID: 1000, GID: 100,
		Size: 0x1_0000_0002, Used: 4096, Rdev: SpecData{8, 1},
		FSID: 0x0a0b0c0d0e0f1011, FileID: 77,
		Atime: Time{1, 2}, Mtime: Time{3, 4}, Ctime: Time{5, 6},
	}
	attrBytes = []byte{
		0, 0, 0, 1, // NF3REG
		0, 0, 0x09, 0xed, // mode
		0, 0, 0, 2, // nlink
		0, 0, 0x03, 0xe8, // uid
		0, 0, 0, 100, // gid
		0, 0, 0, 1, 0, 0, 0, 2, // size
		0, 0, 0, 0, 0, 0, 0x10, 0, // used
		0, 0, 0, 8, 0, 0, 0, 1, // rdev
		0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, // fsid
		0, 0, 0, 0, 0, 0, 0, 77, // fileid
		0, 0, 0, 1, 0, 0, 0, 2, // atime
		0, 0, 0, 3, 0, 0, 0, 4, // mtime
		0, 0, 0, 5, 0, 0, 0, 6, // ctime
	}
	postOp      = PostOpAttr{Present: true, Attr: attr}
	postOpBytes = slices.Concat([]byte{0, 0, 0, 1}, attrBytes)

	wcc = WccData{
		Before: PreOpAttr{Present: true, Size: 9, Mtime: Time{1, 2}, Ctime: Time{3, 4}},
		After:  postOp,
	}
	wccBytes = slices.Concat([]byte{
		0, 0, 0, 1, // attributes follow
		0, 0, 0, 0, 0, 0, 0, 9, // size
		0, 0, 0, 1, 0, 0, 0, 2, // mtime
		0, 0, 0, 3, 0, 0, 0, 4, // ctime
	}, postOpBytes)
	noWccBytes = []byte{0, 0, 0, 0, 0, 0, 0, 0}

	sattr = Sattr{
		Mode: SetUint32{true, 0o644}, UID: SetUint32{true, 1000}, GID: SetUint32{true, 100},
		Size:  SetUint64{true, 0x1_0000_0002},
		Atime: SetTime{How: SetToServerTime}, Mtime: SetTime{SetToClientTime, Time{7, 8}},
	}
	sattrBytes = []byte{
		0, 0, 0, 1, 0, 0, 0x01, 0xa4, // mode
		0, 0, 0, 1, 0, 0, 0x03, 0xe8, // uid
		0, 0, 0, 1, 0, 0, 0, 100, // gid
		0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, // size
		0, 0, 0, 1, // atime: the server's
		0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 8, // mtime: the client's
	}
	noSattrBytes = make([]byte, 6*4)

	verf = [8]byte{1, 2, 3, 4, 5, 6, 7, 8}
)

func okBytes(parts ...[]byte) []byte {
	return slices.Concat([]byte{0, 0, 0, 0}, slices.Concat(parts...))
}

// wireTests are those of all families.
func wireTests() []wireTest {
	return slices.Concat(attrTests, lookupTests, ioTests, createTests, removeTests, readdirTests, fsTests, aclTests)
}

func newMessage(of message) message {
	return reflect.New(reflect.TypeOf(of).Elem()).Interface().(message)
}

func TestWire(t *testing.T) {
	for _, tt := range wireTests() {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.msg.Append([]byte("head")); !bytes.Equal(got[4:], tt.bytes) {
				t.Errorf("appended\n%x, want\n%x", got[4:], tt.bytes)
			}
			got := newMessage(tt.msg)
			d := xdr.NewDecoder(tt.bytes)
			got.Decode(&d)
			if err := d.Finish(); err != nil || !reflect.DeepEqual(got, tt.msg) {
				t.Errorf("decoded %v\n%+v, want\n%+v", err, got, tt.msg)
			}
		})
	}
}

// No message may decode from less than all of its bytes.
func TestDecodeShort(t *testing.T) {
	for _, tt := range wireTests() {
		t.Run(tt.name, func(t *testing.T) {
			for n := range len(tt.bytes) {
				d := xdr.NewDecoder(tt.bytes[:n])
				newMessage(tt.msg).Decode(&d)
				if d.Err() == nil {
					t.Fatalf("decoded from %d of %d bytes", n, len(tt.bytes))
				}
			}
		})
	}
}

// Decoding into a struct that was used before leaves nothing of what was in it.
func TestDecodeIntoUsed(t *testing.T) {
	for _, tt := range wireTests() {
		for _, other := range wireTests() {
			if reflect.TypeOf(tt.msg) != reflect.TypeOf(other.msg) {
				continue
			}
			msg := newMessage(tt.msg)
			for _, rec := range [][]byte{other.bytes, tt.bytes} {
				d := xdr.NewDecoder(rec)
				msg.Decode(&d)
			}
			if !reflect.DeepEqual(msg, tt.msg) {
				t.Errorf("%s after %s:\n%+v, want\n%+v", tt.name, other.name, msg, tt.msg)
			}
		}
	}
}

func TestDecodeLimits(t *testing.T) {
	longFH := FH(make([]byte, FHSize+1))
	longPath := make([]byte, MaxPath+1)
	tests := []struct {
		name string
		msg  message
		want error
	}{
		{"handle", &GetattrArgs{Object: longFH}, xdr.ErrTooLong},
		{"name", &LookupArgs{Name: longPath}, xdr.ErrTooLong},
		{"second name", &RenameArgs{To: DirOpArgs{Name: longPath}}, xdr.ErrTooLong},
		{"link's handle", &LinkArgs{File: longFH}, xdr.ErrTooLong},
		{"symlink's path", &SymlinkArgs{Path: make([]byte, MaxData+1)}, xdr.ErrTooLong},
		{"read link", &ReadlinkRes{Path: longPath}, xdr.ErrTooLong},
		{"written data", &WriteArgs{Data: make([]byte, MaxData+1)}, xdr.ErrTooLong},
		{"read data", &ReadRes{Data: make([]byte, MaxData+1)}, xdr.ErrTooLong},
		{"created handle", &CreateRes{Object: longFH}, xdr.ErrTooLong},
		{"entry's name", &ReaddirRes{Entries: []Entry{{Name: longPath}}}, xdr.ErrTooLong},
		{"entry's handle", &ReaddirplusRes{Entries: []EntryPlus{{Object: longFH}}}, xdr.ErrTooLong},
		{"stable_how", &WriteArgs{Stable: 3}, xdr.ErrValue},
		{"committed", &WriteRes{Committed: 3}, xdr.ErrValue},
		{"createmode3", &CreateArgs{Mode: 3}, xdr.ErrValue},
		{"atime's time_how", &SetattrArgs{Attr: Sattr{Atime: SetTime{How: 3}}}, xdr.ErrValue},
		{"mtime's time_how", &MkdirArgs{Attr: Sattr{Mtime: SetTime{How: 3}}}, xdr.ErrValue},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := xdr.NewDecoder(tt.msg.Append(nil))
			newMessage(tt.msg).Decode(&d)
			if !errors.Is(d.Err(), tt.want) {
				t.Errorf("err = %v, want %v", d.Err(), tt.want)
			}
		})
	}
}

func TestAllocs(t *testing.T) {
	rec := (&ReadArgs{File: make(FH, 32), Offset: 1 << 20, Count: 4096}).Append(nil)
	write := (&WriteArgs{File: make(FH, 32), Count: 4096, Data: make([]byte, 4096)}).Append(nil)
	out := make([]byte, 0, 8192)
	data := make([]byte, 4096)
	for name, f := range map[string]func(){
		"decode READ's arguments": func() {
			d := xdr.NewDecoder(rec)
			var a ReadArgs
			a.Decode(&d)
			if d.Err() != nil || a.Count != 4096 {
				t.Fatal("not decoded")
			}
		},
		"decode WRITE's arguments": func() {
			d := xdr.NewDecoder(write)
			var a WriteArgs
			a.Decode(&d)
			if d.Err() != nil || len(a.Data) != 4096 {
				t.Fatal("not decoded")
			}
		},
		"append GETATTR's result": func() {
			r := GetattrRes{Attr: attr}
			out = r.Append(out[:0])
		},
		"append READ's result": func() {
			r := ReadRes{Attr: postOp, Data: data}
			out = r.Append(out[:0])
		},
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestStatusString(t *testing.T) {
	for s, want := range map[Status]string{
		OK: "NFS3_OK", ErrPerm: "NFS3ERR_PERM", ErrNotSync: "NFS3ERR_NOT_SYNC", ErrBadCookie: "NFS3ERR_BAD_COOKIE", 77: "nfsstat3(77)",
	} {
		if s.String() != want {
			t.Errorf("%d is %q, want %q", uint32(s), s, want)
		}
	}
}

// FuzzWire decodes a record as each kind of message there is. What decodes must
// encode to something that decodes and encodes to the same.
func FuzzWire(f *testing.F) {
	tests := wireTests()
	var kinds []message
	for _, tt := range tests {
		if !slices.ContainsFunc(kinds, func(k message) bool { return reflect.TypeOf(k) == reflect.TypeOf(tt.msg) }) {
			kinds = append(kinds, tt.msg)
		}
	}
	for _, tt := range tests {
		for i, k := range kinds {
			if reflect.TypeOf(k) == reflect.TypeOf(tt.msg) {
				f.Add(uint8(i), tt.bytes)
			}
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, rec []byte) {
		of := kinds[int(kind)%len(kinds)]
		msg := newMessage(of)
		d := xdr.NewDecoder(rec)
		msg.Decode(&d)
		if d.Err() != nil {
			return
		}
		first := msg.Append(nil)
		again := newMessage(of)
		d = xdr.NewDecoder(first)
		again.Decode(&d)
		if err := d.Finish(); err != nil {
			t.Fatalf("%+v: %v", msg, err)
		}
		if second := again.Append(nil); !bytes.Equal(first, second) {
			t.Fatalf("%x became %x", first, second)
		}
	})
}
