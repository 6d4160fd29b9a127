package nfs3

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/podnas/podnas/nfs/xdr"
)

func words(vs ...uint32) (b []byte) {
	for _, v := range vs {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

var (
	access = ACLOf(ACE{ACLUserObj, 1000, 6}, ACE{ACLUser, 7, 5}, ACE{ACLGroupObj, 100, 4}, ACE{ACLMaskObj, 0, 5}, ACE{ACLOther, 0, 0})
	ofDir  = ACLOf(ACE{ACLUserObj | ACLOfDefault, 0, 7})

	accessBytes = words(5, 5, 1, 1000, 6, 2, 7, 5, 4, 100, 4, 0x10, 0, 5, 0x20, 0, 0)
	ofDirBytes  = words(1, 1, 0x1001, 0, 7)
)

var aclTests = []wireTest{
	{"GETACL args", &GetaclArgs{Object: fh, Mask: 5}, slices.Concat(fhBytes, words(5))},
	{
		"GETACL", &GetaclRes{Attr: postOp, Mask: 15, Access: access, Default: ofDir},
		slices.Concat(words(0), postOpBytes, words(15), accessBytes, ofDirBytes),
	},
	{
		"GETACL of numbers", &GetaclRes{Attr: postOp, Mask: 10, Access: ACL{Count: 5}},
		slices.Concat(words(0), postOpBytes, words(10), words(5, 0, 0, 0)),
	},
	{"GETACL refused", &GetaclRes{Status: ErrStale, Attr: postOp}, slices.Concat(words(70), postOpBytes)},
	{"SETACL args", &SetaclArgs{Object: fh, Mask: 5, Access: access, Default: ofDir}, slices.Concat(fhBytes, words(5), accessBytes, ofDirBytes)},
	{"SETACL", &SetaclRes{Attr: postOp}, slices.Concat(words(0), postOpBytes)},
	{"SETACL refused", &SetaclRes{Status: ErrPerm}, words(1, 0)},
}

// Counts are not believed.
func TestACLsRefused(t *testing.T) {
	for name, b := range map[string][]byte{
		"more entries than bytes": words(2, 2, 1, 0, 7),
		"a count of others":       words(2, 1, 1, 0, 7),
		"too many":                words(1025, 1025),
		"a number of too many":    words(1025, 0),
	} {
		d := xdr.NewDecoder(slices.Concat(fhBytes, words(1), b, words(0, 0)))
		var args SetaclArgs
		if args.Decode(&d); d.Err() == nil {
			t.Errorf("%s: decoded %+v", name, args)
		}
	}
}
