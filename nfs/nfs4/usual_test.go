package nfs4

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// The usual attributes are appended as all others are, whichever of them there are.
func TestUsualAttrs(t *testing.T) {
	a := Attrs{
		Type: TypeReg, Change: 1, Size: 2, FSID: FSID{Major: 3, Minor: 4}, RdattrError: ErrAccess, Filehandle: FH("handle"), FileID: 5,
		Mode: 6, NumLinks: 7, Owner: []byte("8"), OwnerGroup: []byte("group"), RawDev: SpecData{Major: 9, Minor: 10}, SpaceUsed: 11,
		TimeAccess: Time{12, 13}, TimeCreate: Time{19, 20}, TimeMetadata: Time{14, 15}, TimeModify: Time{16, 17}, MountedOnFileID: 18,
	}
	masks := []Bitmap{{}, {usual0, usual1}}
	for bit := range uint32(64) {
		masks = append(masks, BitmapOf(bit).And(Bitmap{usual0, usual1}))
	}
	for range 1000 {
		masks = append(masks, Bitmap{rand.Uint32() & usual0, rand.Uint32() & usual1})
	}
	for _, mask := range masks {
		if got, want := a.appendUsual(nil, mask), a.appendValues(nil, mask); !bytes.Equal(got, want) {
			t.Fatalf("%x: %x, want %x", mask, got, want)
		}
	}
}

// BenchmarkAttrs appends the attributes of an entry of a listing.
func BenchmarkAttrs(b *testing.B) {
	a := Attrs{Filehandle: make(FH, 40), Owner: []byte("1000"), OwnerGroup: []byte("1000")}
	mask, buf := Bitmap{usual0, usual1}, make([]byte, 0, 1<<10)
	for _, way := range []struct {
		name string
		do   func([]byte, Bitmap) []byte
	}{{"usual", a.appendUsual}, {"any", a.appendValues}} {
		b.Run(way.name, func(b *testing.B) {
			for b.Loop() {
				way.do(buf, mask)
			}
		})
	}
}
