package mount3

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

type message interface {
	Append(b []byte) []byte
	Decode(d *xdr.Decoder)
}

// Bytes by hand from RFC 1813 appendix I.
var wireTests = []struct {
	name  string
	msg   message
	empty message
	bytes []byte
}{
	{
		"path", &PathArgs{Path: []byte("/pvc-1")}, new(PathArgs),
		[]byte{0, 0, 0, 6, '/', 'p', 'v', 'c', '-', '1', 0, 0},
	},
	{
		"MNT", &MntRes{Handle: []byte{1, 2, 3, 4, 5}, Flavors: []rpc.AuthFlavor{rpc.AuthSys, rpc.AuthNone}}, new(MntRes),
		[]byte{
			0, 0, 0, 0, // MNT3_OK
			0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0, // handle
			0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, // flavors
		},
	},
	{
		"MNT refused", &MntRes{Status: ErrNoEnt}, new(MntRes),
		[]byte{0, 0, 0, 2},
	},
	{
		"DUMP", &DumpRes{Mounts: []Mount{{[]byte("a"), []byte("/x")}, {[]byte("node"), []byte("/y")}}}, new(DumpRes),
		[]byte{
			0, 0, 0, 1, 0, 0, 0, 1, 'a', 0, 0, 0, 0, 0, 0, 2, '/', 'x', 0, 0,
			0, 0, 0, 1, 0, 0, 0, 4, 'n', 'o', 'd', 'e', 0, 0, 0, 2, '/', 'y', 0, 0,
			0, 0, 0, 0,
		},
	},
	{"DUMP of nothing", &DumpRes{}, new(DumpRes), []byte{0, 0, 0, 0}},
	{
		"EXPORT", &ExportRes{Exports: []Export{
			{Directory: []byte("/x"), Groups: [][]byte{[]byte("a"), []byte("b")}},
			{Directory: []byte("/y")},
		}}, new(ExportRes),
		[]byte{
			0, 0, 0, 1, 0, 0, 0, 2, '/', 'x', 0, 0,
			0, 0, 0, 1, 0, 0, 0, 1, 'a', 0, 0, 0,
			0, 0, 0, 1, 0, 0, 0, 1, 'b', 0, 0, 0,
			0, 0, 0, 0,
			0, 0, 0, 1, 0, 0, 0, 2, '/', 'y', 0, 0,
			0, 0, 0, 0,
			0, 0, 0, 0,
		},
	},
}

func TestWire(t *testing.T) {
	for _, tt := range wireTests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.msg.Append(nil); !bytes.Equal(got, tt.bytes) {
				t.Errorf("appended\n%x, want\n%x", got, tt.bytes)
			}
			d := xdr.NewDecoder(tt.bytes)
			tt.empty.Decode(&d)
			if err := d.Finish(); err != nil || !reflect.DeepEqual(tt.empty, tt.msg) {
				t.Errorf("decoded %+v, %v; want %+v", tt.empty, err, tt.msg)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	long := xdr.AppendOpaque(nil, make([]byte, MaxPath+1))
	tests := []struct {
		name string
		msg  message
		rec  []byte
	}{
		{"path", new(PathArgs), long},
		{"handle", new(MntRes), (&MntRes{Handle: make([]byte, FHSize+1)}).Append(nil)},
		{"flavors", new(MntRes), (&MntRes{Flavors: make([]rpc.AuthFlavor, maxFlavors+1)}).Append(nil)},
		{"host name", new(DumpRes), (&DumpRes{Mounts: []Mount{{Hostname: make([]byte, MaxName+1)}}}).Append(nil)},
		{"group", new(ExportRes), (&ExportRes{Exports: []Export{{Groups: [][]byte{make([]byte, MaxName+1)}}}}).Append(nil)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := xdr.NewDecoder(tt.rec)
			tt.msg.Decode(&d)
			if !errors.Is(d.Err(), xdr.ErrTooLong) {
				t.Errorf("err = %v", d.Err())
			}
		})
	}
}

func TestStatusString(t *testing.T) {
	for s, want := range map[Status]string{OK: "MNT3_OK", ErrNoEnt: "MNT3ERR_NOENT", 77: "mountstat3(77)"} {
		if s.String() != want {
			t.Errorf("%d is %q, want %q", uint32(s), s, want)
		}
	}
}

// What decodes must encode to something that decodes and encodes to the same.
func FuzzWire(f *testing.F) {
	kinds := []func() message{
		func() message { return new(PathArgs) },
		func() message { return new(MntRes) },
		func() message { return new(DumpRes) },
		func() message { return new(ExportRes) },
	}
	for _, tt := range wireTests {
		for i := range kinds {
			f.Add(uint8(i), tt.bytes)
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, rec []byte) {
		makeMessage := kinds[int(kind)%len(kinds)]
		msg := makeMessage()
		d := xdr.NewDecoder(rec)
		msg.Decode(&d)
		if d.Err() != nil {
			return
		}
		first := msg.Append(nil)
		again := makeMessage()
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
