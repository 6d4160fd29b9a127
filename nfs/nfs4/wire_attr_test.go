package nfs4

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/podnas/podnas/nfs/xdr"
)

// allAttrs has every attribute that has a field, and allAttrsBytes are their values in
// the order of their numbers.
var (
	allAttrs = Attrs{
		Mask: Bitmap{
			0xffff_ffff &^ (1<<AttrArchive | 1<<AttrFSLocations | 1<<AttrHidden),
			// Without mimetype, system, the times to set, backup, and what 4.1 adds.
			0x00ff_ffff &^ (1<<0 | 1<<14 | 1<<16 | 1<<17 | 1<<22),
			1<<(75-64) | 1<<(77-64) | 1<<(79-64) | 1<<(82-64),
		},
		SupportedAttrs: Bitmap{1, 0, 4}, Type: TypeDir, FHExpireType: FHVolRename, Change: 0x1_0000_0003, Size: 0x1_0000_0004,
		LinkSupport: true, NamedAttr: true, FSID: FSID{8, 9}, LeaseTime: 10, RdattrError: ErrAccess,
		ACL: []ACE{{ACEDenied, ACEIdentifierGroup, ACEReadData, []byte("12")}}, ACLSupport: 13, CanSetTime: true, CasePreserving: true, ChownRestricted: true, Filehandle: fh, FileID: 20,
		FilesAvail: 21, FilesFree: 22, FilesTotal: 23, Homogeneous: true, MaxFileSize: 27, MaxLink: 28, MaxName: 29,
		MaxRead: 30, MaxWrite: 31, Mode: 0o755, NoTrunc: true, NumLinks: 35, Owner: []byte("36"), OwnerGroup: []byte("37"),
		QuotaAvailHard: 38, QuotaAvailSoft: 39, QuotaUsed: 40, RawDev: SpecData{41, 42}, SpaceAvail: 42, SpaceFree: 43,
		SpaceTotal: 44, SpaceUsed: 45, TimeAccess: Time{47, 1}, TimeCreate: Time{50, 2}, TimeDelta: Time{0, 51},
		TimeMetadata: Time{52, 3}, TimeModify: Time{53, 4}, MountedOnFileID: 55, SuppattrExclcreat: Bitmap{75},
		CloneBlksize: 77, ChangeAttrType: 79, XattrSupport: true,
	}
	allAttrsBytes = slices.Concat(
		words(3, 1, 0, 4),                             // supported_attrs
		words(2),                                      // type
		words(8),                                      // fh_expire_type
		words(1, 3),                                   // change
		words(1, 4),                                   // size
		words(1, 0, 1),                                // link_support, symlink_support, named_attr
		words(0, 8, 0, 9),                             // fsid
		words(0),                                      // unique_handles
		words(10),                                     // lease_time
		words(13),                                     // rdattr_error
		words(1, 1, 0x40, 1, 2), []byte("12\x00\x00"), // acl
		words(13),                  // aclsupport
		words(1, 0, 1, 1),          // cansettime, case_insensitive, case_preserving, chown_restricted
		fhBytes,                    // filehandle
		words(0, 20),               // fileid
		words(0, 21, 0, 22, 0, 23), // files_avail, files_free, files_total
		words(1),                   // homogeneous
		words(0, 27),               // maxfilesize
		words(28, 29),              // maxlink, maxname
		words(0, 30, 0, 31),        // maxread, maxwrite
		words(0x1ed),               // mode
		words(1),                   // no_trunc
		words(35),                  // numlinks
		[]byte{0, 0, 0, 2, '3', '6', 0, 0, 0, 0, 0, 2, '3', '7', 0, 0}, // owner, owner_group
		words(0, 38, 0, 39, 0, 40),                                     // quota_avail_hard, quota_avail_soft, quota_used
		words(41, 42),                                                  // rawdev
		words(0, 42, 0, 43, 0, 44, 0, 45),                              // space_avail, space_free, space_total, space_used
		words(0, 47, 1),                                                // time_access
		words(0, 50, 2),                                                // time_create
		words(0, 0, 51),                                                // time_delta
		words(0, 52, 3),                                                // time_metadata
		words(0, 53, 4),                                                // time_modify
		words(0, 55),                                                   // mounted_on_fileid
		words(1, 75),                                                   // suppattr_exclcreat
		words(77),                                                      // clone_blksize
		words(79),                                                      // change_attr_type
		words(1),                                                       // xattr_support
	)
	allMaskBytes = words(3, 0xfcff_bfff, 0x00bc_bffe, 0x0004_a800)
)

var attrTests = []wireTest{
	{"GETATTR args", &GetattrArgs{Request: Bitmap{0x18, 0, 1}}, words(3, 0x18, 0, 1)},
	{"GETATTR args of nothing", &GetattrArgs{}, words(0)},
	{
		"GETATTR", &GetattrRes{Attr: Attrs{Mask: BitmapOf(AttrType, AttrSize, AttrMode), Type: TypeReg, Size: 5, Mode: 0o644}},
		okBytes(words(2, 1<<1|1<<4, 1<<1), words(16), words(1), words(0, 5), words(0o644)),
	},
	{"GETATTR of all", &GetattrRes{Attr: allAttrs}, okBytes(allMaskBytes, words(uint32(len(allAttrsBytes))), allAttrsBytes)},
	{"GETATTR refused", &GetattrRes{Status: ErrStale}, words(70)},
	{"SETATTR args", &SetattrArgs{Stateid: stateid, Attr: sattr}, slices.Concat(stateidBytes, sattrBytes)},
	{
		"SETATTR args of times", &SetattrArgs{Attr: Sattr{
			Mask:       BitmapOf(AttrOwnerGroup, AttrTimeAccessSet, AttrTimeModifySet),
			OwnerGroup: []byte("100"), TimeAccess: SetTime{How: SetToServerTime}, TimeModify: SetTime{SetToClientTime, Time{7, 8}},
		}},
		slices.Concat(make([]byte, 16), words(2, 0, 1<<5|1<<16|1<<22), words(8+4+16, 3), []byte("100\x00"), words(0), words(1, 0, 7, 8)),
	},
	{
		"SETATTR args of modes", &SetattrArgs{Attr: Sattr{
			Mask:          BitmapOf(AttrModeSetMasked, AttrModeUmask),
			ModeSetMasked: ModeMasked{Value: 0o200, Mask: 0o222}, ModeUmask: ModeUmask{Mode: 0o666, Umask: 0o22},
		}},
		slices.Concat(make([]byte, 16), words(3, 0, 0, 1<<10|1<<17), words(16, 0o200, 0o222, 0o666, 0o22)),
	},
	{
		"SETATTR args of an ACL", &SetattrArgs{Attr: Sattr{Mask: BitmapOf(AttrACL), ACL: []ACE{
			{ACEAllowed, ACEFileInherit | ACEDirectoryInherit, ACEMaskAll, []byte("OWNER@")}, {ACEDenied, 0, 0, []byte{}},
		}}},
		slices.Concat(make([]byte, 16), words(1, 1<<12), words(4+24+16, 2), words(0, 3, 0x1f07ff, 6), []byte("OWNER@\x00\x00"), words(1, 0, 0, 0)),
	},
	{"SETATTR args of no ACE", &SetattrArgs{Attr: Sattr{Mask: BitmapOf(AttrACL)}}, slices.Concat(make([]byte, 16), words(1, 1<<12), words(4, 0))},
	{"SETATTR", &SetattrRes{AttrSet: attrSet}, okBytes(attrSetBytes)},
	{"SETATTR refused", &SetattrRes{Status: ErrPerm, AttrSet: attrSet}, slices.Concat(words(1), attrSetBytes)},
	{
		"VERIFY args", &VerifyArgs{Attr: Fattr{Mask: BitmapOf(AttrSize, AttrACL), Vals: []byte("whatever")}},
		slices.Concat(words(1, 1<<4|1<<12, 8), []byte("whatever")),
	},
}

// Each attribute on its own: it is encoded if it is both wanted and given, and is the
// only one that is decoded.
func TestAttrsOneByOne(t *testing.T) {
	var values []byte
	field := 0 // the fields are in the order of their attributes; the first is Mask
	for attr := range uint32(96) {
		one := BitmapOf(attr)
		if !allAttrs.Mask.Has(attr) {
			if b := allAttrs.appendValue(nil, attr); len(b) > 0 {
				t.Errorf("attribute %d has a field and isn't in allAttrs", attr)
			}
			continue
		}
		field++
		b := allAttrs.Append(nil, one)
		var got Attrs
		d := xdr.NewDecoder(b)
		got.Decode(&d)
		if err := d.Finish(); err != nil || got.Mask != one {
			t.Errorf("attribute %d: mask %x, %v", attr, got.Mask, err)
		}
		want := Attrs{Mask: one}
		reflect.ValueOf(&want).Elem().Field(field).Set(reflect.ValueOf(allAttrs).Field(field))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("attribute %d:\n%+v, want\n%+v", attr, got, want)
		}
		values = append(values, b[4+4*(attr/32+1)+4:]...)

		given := allAttrs
		given.Mask.Clear(attr)
		if b := given.Append(nil, one); !bytes.Equal(b, words(0, 0)) {
			t.Errorf("attribute %d isn't given, and appended is %x", attr, b)
		}
	}
	if n := reflect.TypeFor[Attrs]().NumField() - 1; field != n {
		t.Errorf("%d attributes, %d fields", field, n)
	}
	if !bytes.Equal(values, allAttrsBytes) {
		t.Errorf("one by one\n%x, all at once\n%x", values, allAttrsBytes)
	}
}

// An attribute that can't be set is remembered, as are those after it.
func TestSattrOfOthers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		bytes  []byte
		mask   Bitmap
		others bool
	}{
		{"an ACL", words(1, 1<<4|1<<12, 12, 0, 5, 0), BitmapOf(AttrSize, AttrACL), false},
		{"hidden", words(1, 1<<4|1<<25, 12, 0, 5, 1), BitmapOf(AttrSize, AttrHidden), false},
		{"a time that is only read", words(2, 1<<4, 1<<20, 20, 0, 5, 0, 1, 2), BitmapOf(AttrSize, AttrTimeMetadata), false},
		{"bit 95", words(3, 1<<4, 0, 1<<31, 8, 0, 5), BitmapOf(AttrSize, 95), false},
		{"bit 96", words(4, 1<<4, 0, 0, 1, 12, 0, 5, 0), BitmapOf(AttrSize), true},
		{"no bit in the fourth word", words(4, 1<<4, 0, 0, 0, 8, 0, 5), BitmapOf(AttrSize), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got SetattrArgs
			d := xdr.NewDecoder(slices.Concat(stateidBytes, tt.bytes))
			got.Decode(&d)
			want := Sattr{Mask: tt.mask, Others: tt.others, Size: 5}
			if err := d.Finish(); err != nil || !reflect.DeepEqual(got.Attr, want) {
				t.Errorf("%v\n%+v, want\n%+v", err, got.Attr, want)
			}
		})
	}
}

// The values end where the attributes do.
func TestAttrValues(t *testing.T) {
	mask := words(1, 1<<AttrSize)
	for _, tt := range []struct {
		name string
		vals []byte
		want error
	}{
		{"right", words(8, 0, 5), nil},
		{"short", words(4, 0), xdr.ErrShort},
		{"none", words(0), xdr.ErrShort},
		{"long", words(12, 0, 5, 0), xdr.ErrTrailing},
	} {
		rec := slices.Concat(mask, tt.vals)
		d := xdr.NewDecoder(slices.Concat(stateidBytes, rec))
		(&SetattrArgs{}).Decode(&d)
		if !errors.Is(d.Err(), tt.want) {
			t.Errorf("to set, %s: %v, want %v", tt.name, d.Err(), tt.want)
		}
		d = xdr.NewDecoder(rec)
		new(Attrs).Decode(&d)
		if !errors.Is(d.Err(), tt.want) {
			t.Errorf("read, %s: %v, want %v", tt.name, d.Err(), tt.want)
		}
	}
	// An attribute without a field can't be skipped.
	for name, rec := range map[string][]byte{"archive": words(1, 1<<14, 4, 0), "bit 96": words(4, 0, 0, 0, 1, 0)} {
		d := xdr.NewDecoder(rec)
		if new(Attrs).Decode(&d); !errors.Is(d.Err(), xdr.ErrValue) {
			t.Errorf("%s: %v", name, d.Err())
		}
	}
}

func TestSettableAttrs(t *testing.T) {
	var s Sattr
	for attr := range uint32(96) {
		d := xdr.NewDecoder(nil)
		encoded, decoded, want := len(s.appendValue(nil, attr)) > 0, s.decodeValue(&d, attr), SettableAttrs().Has(attr)
		if encoded != want || decoded != want {
			t.Errorf("attribute %d: encoded is %v, decoded %v, settable %v", attr, encoded, decoded, want)
		}
	}
}

// An entry with attributes that are encoded in place is the same as one with a Fattr.
func TestAppendEntry(t *testing.T) {
	wanted := BitmapOf(AttrType, AttrFileID, AttrXattrSupport, AttrArchive)
	list := ReaddirRes{CookieVerf: verf, EOF: true}
	b := list.AppendHead(nil)
	b = AppendEntry(b, 3, name, &allAttrs, wanted)
	b = list.AppendTail(b)

	var got ReaddirRes
	d := xdr.NewDecoder(b)
	got.Decode(&d)
	if err := d.Finish(); err != nil || len(got.Entries) != 1 || !got.EOF {
		t.Fatalf("%+v, %v", got, err)
	}
	attrs, err := got.Entries[0].Attr.Attrs()
	want := Attrs{Mask: BitmapOf(AttrType, AttrFileID, AttrXattrSupport), Type: TypeDir, FileID: 20, XattrSupport: true}
	if err != nil || !reflect.DeepEqual(attrs, want) {
		t.Errorf("%v\n%+v, want\n%+v", err, attrs, want)
	}
	if !bytes.Equal(got.Append(nil), b) {
		t.Error("appended again, it differs")
	}
}

func TestBitmap(t *testing.T) {
	m := BitmapOf(0, 31, 32, 95)
	if m != (Bitmap{1<<31 | 1, 1, 1 << 31}) {
		t.Errorf("%x", m)
	}
	var bits []uint32
	for bit, ok := m.next(0); ok; bit, ok = m.next(bit + 1) {
		bits = append(bits, bit)
	}
	if !slices.Equal(bits, []uint32{0, 31, 32, 95}) {
		t.Errorf("bits %d", bits)
	}
	for _, bit := range []uint32{1, 30, 33, 94, 96, 1 << 31} {
		if m.Has(bit) {
			t.Errorf("has %d", bit)
		}
	}
	m.Clear(95)
	if m.Has(95) || !m.Has(32) {
		t.Errorf("cleared: %x", m)
	}
	a, b := BitmapOf(1, 40), BitmapOf(40, 80)
	if a.And(b) != BitmapOf(40) || a.Or(b) != BitmapOf(1, 40, 80) || a.Without(b) != BitmapOf(1) {
		t.Errorf("%x and %x: %x, %x, %x", a, b, a.And(b), a.Or(b), a.Without(b))
	}
	if a.Empty() || !a.Without(a).Empty() {
		t.Error("Empty")
	}
	// Words past what Bitmap has room for, and too many of them.
	d := xdr.NewDecoder(words(5, 1, 2, 3, 0, 4))
	if got, others := decodeBitmap(&d); got != (Bitmap{1, 2, 3}) || !others || d.Finish() != nil {
		t.Errorf("%x, %v, %v", got, others, d.Err())
	}
	d = xdr.NewDecoder(append(words(1000, 5), make([]byte, 4*999)...))
	if got, others := decodeBitmap(&d); got != (Bitmap{5}) || others || d.Finish() != nil {
		t.Errorf("%x, %v, %v", got, others, d.Err())
	}
	d = xdr.NewDecoder(words(1000, 5))
	if decodeBitmap(&d); !errors.Is(d.Err(), xdr.ErrShort) {
		t.Error(d.Err())
	}
}
