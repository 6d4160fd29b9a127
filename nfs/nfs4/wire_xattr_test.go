package nfs4

import (
	"slices"
	"strings"
	"testing"

	"github.com/podnas/podnas/nfs/xdr"
)

var xattrTests = []wireTest{
	{"GETXATTR args", &GetxattrArgs{Name: name}, nameBytes},
	{"GETXATTR", &GetxattrRes{Value: []byte("\x00value")}, okBytes(words(6), []byte("\x00value\x00\x00"))},
	{"GETXATTR of nothing", &GetxattrRes{Value: []byte{}}, okBytes(words(0))},
	{"GETXATTR refused", &GetxattrRes{Status: ErrNoXattr}, words(10095)},
	{
		"SETXATTR args", &SetxattrArgs{Option: SetxattrReplace, Name: name, Value: []byte("value")},
		slices.Concat(words(2), nameBytes, words(5), []byte("value\x00\x00\x00")),
	},
	{"SETXATTR args of an unknown option", &SetxattrArgs{Option: 3, Name: name, Value: []byte{}}, slices.Concat(words(3), nameBytes, words(0))},
	{"SETXATTR", &SetxattrRes{Change: change}, okBytes(changeBytes)},
	{"SETXATTR refused", &SetxattrRes{Status: ErrXattr2Big}, words(10096)},
	{"LISTXATTRS args", &ListxattrsArgs{Cookie: 0x1_0000_0002, MaxCount: 3}, words(1, 2, 3)},
	{
		"LISTXATTRS", &ListxattrsRes{Cookie: 0x1_0000_0002, Names: [][]byte{name, link}, EOF: true},
		okBytes(words(1, 2, 2), nameBytes, linkBytes, words(1)),
	},
	{"LISTXATTRS of nothing", &ListxattrsRes{EOF: true}, okBytes(words(0, 0, 0, 1))},
	{"LISTXATTRS refused", &ListxattrsRes{Status: ErrTooSmall}, words(10005)},
	{"REMOVEXATTR args", &RemovexattrArgs{Name: name}, nameBytes},
}

// A count of names is not believed.
func TestXattrsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		msg   message
		bytes []byte
	}{
		"more names than bytes":     {&ListxattrsRes{}, okBytes(words(0, 1, 1<<31, 0, 1))},
		"more names than there are": {&ListxattrsRes{}, okBytes(words(0, 1, 5, 0, 0, 0, 1))},
		"a value that is cut":       {&SetxattrArgs{}, slices.Concat(words(0), nameBytes, words(8), []byte("cut!"))},
		"a name of 8 KiB":           {&SetxattrArgs{}, slices.Concat(words(0, 8<<10), []byte(strings.Repeat("n", 8<<10)), words(0))},
	} {
		d := xdr.NewDecoder(tt.bytes)
		if tt.msg.Decode(&d); d.Err() == nil {
			t.Errorf("%s: decoded %+v", name, tt.msg)
		}
	}
}
