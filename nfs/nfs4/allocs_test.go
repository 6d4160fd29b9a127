package nfs4

import (
	"testing"

	"github.com/podnas/podnas/nfs/xdr"
)

// The operations of the hot path, in the server's direction: arguments are decoded and
// results appended without an allocation.
func TestAllocs(t *testing.T) {
	out := make([]byte, 0, 8192)
	encode := func(m message) []byte { return m.Append(nil) }
	sequence := encode(&SequenceArgs{CacheThis: true})
	putfh := encode(&PutfhArgs{FH: make(FH, 32)})
	lookup := encode(&LookupArgs{Name: name})
	access := encode(&AccessArgs{Access: 0x3f})
	getattr := encode(&GetattrArgs{Request: allAttrs.Mask})
	read := encode(&ReadArgs{Count: 4096})
	write := encode(&WriteArgs{Data: make([]byte, 4096)})
	open := encode(openArgs(OpenArgs{Create: true, Mode: ExclusiveAttrs, Attr: sattr, Name: name}))
	closing := encode(&CloseArgs{Stateid: stateid})
	lock := encode(&LockArgs{Type: LockWrite, NewOwner: true, Owner: owner})
	data := make([]byte, 4096)
	for name, f := range map[string]func() error{
		"SEQUENCE": func() error {
			d := xdr.NewDecoder(sequence)
			var a SequenceArgs
			a.Decode(&d)
			r := SequenceRes{SessionID: a.SessionID}
			out = r.Append(out[:0])
			return d.Finish()
		},
		"PUTFH": func() error {
			d := xdr.NewDecoder(putfh)
			var a PutfhArgs
			a.Decode(&d)
			r := PutfhRes{}
			out = r.Append(out[:0])
			return d.Finish()
		},
		"LOOKUP": func() error {
			d := xdr.NewDecoder(lookup)
			var a LookupArgs
			a.Decode(&d)
			r := LookupRes{}
			out = r.Append(out[:0])
			return d.Finish()
		},
		"GETFH": func() error {
			r := GetfhRes{FH: fh}
			out = r.Append(out[:0])
			return nil
		},
		"ACCESS": func() error {
			d := xdr.NewDecoder(access)
			var a AccessArgs
			a.Decode(&d)
			r := AccessRes{Supported: a.Access, Access: a.Access}
			out = r.Append(out[:0])
			return d.Finish()
		},
		"GETATTR": func() error {
			d := xdr.NewDecoder(getattr)
			var a GetattrArgs
			a.Decode(&d)
			r := GetattrRes{Attr: allAttrs}
			r.Attr.Mask = a.Request
			out = r.Append(out[:0])
			return d.Finish()
		},
		"READ": func() error {
			d := xdr.NewDecoder(read)
			var a ReadArgs
			a.Decode(&d)
			r := ReadRes{Data: data[:a.Count]}
			out = r.Append(out[:0])
			return d.Finish()
		},
		"WRITE": func() error {
			d := xdr.NewDecoder(write)
			var a WriteArgs
			a.Decode(&d)
			r := WriteRes{Count: uint32(len(a.Data))}
			out = r.Append(out[:0])
			return d.Finish()
		},
		"OPEN": func() error {
			d := xdr.NewDecoder(open)
			var a OpenArgs
			a.Decode(&d)
			r := OpenRes{AttrSet: a.Attr.Mask, Delegation: Delegation{Type: DelegateNoneExt}}
			out = r.Append(out[:0])
			return d.Finish()
		},
		"CLOSE": func() error {
			d := xdr.NewDecoder(closing)
			var a CloseArgs
			a.Decode(&d)
			r := CloseRes{Stateid: a.Stateid}
			out = r.Append(out[:0])
			return d.Finish()
		},
		"LOCK": func() error {
			d := xdr.NewDecoder(lock)
			var a LockArgs
			a.Decode(&d)
			r := LockRes{Status: ErrDenied, Denied: LockDenied{Type: a.Type, Owner: a.Owner}}
			out = r.Append(out[:0])
			return d.Finish()
		},
		"an entry of READDIR": func() error {
			out = AppendEntry(out[:0], 3, fh, &allAttrs, allAttrs.Mask)
			return nil
		},
	} {
		if err := f(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := testing.AllocsPerRun(1000, func() { _ = f() }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// What the clients of Linux ask for most.
func BenchmarkGetattr(b *testing.B) {
	wanted := BitmapOf(AttrType, AttrChange, AttrSize, AttrFSID, AttrFileID, AttrMode, AttrNumLinks, AttrOwner, AttrOwnerGroup,
		AttrSpaceUsed, AttrTimeAccess, AttrTimeMetadata, AttrTimeModify, AttrMountedOnFileID)
	out := make([]byte, 0, 1024)
	for b.Loop() {
		out = allAttrs.Append(out[:0], wanted)
	}
}
