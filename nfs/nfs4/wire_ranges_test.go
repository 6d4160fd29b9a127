package nfs4

import (
	"slices"
	"testing"

	"github.com/podnas/podnas/nfs/xdr"
)

var (
	other      = Stateid{Seqid: 9, Other: [12]byte{12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}}
	otherBytes = []byte{0, 0, 0, 9, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}
)

var rangesTests = []wireTest{
	{
		"ALLOCATE args", &AllocateArgs{Stateid: stateid, Offset: 0x1_0000_0002, Length: 0x3_0000_0004},
		slices.Concat(stateidBytes, words(1, 2, 3, 4)),
	},
	{
		"CLONE args", &CloneArgs{Src: stateid, Dst: other, SrcOffset: 0x1_0000_0002, DstOffset: 0x3_0000_0004, Count: 0x5_0000_0006},
		slices.Concat(stateidBytes, otherBytes, words(1, 2, 3, 4, 5, 6)),
	},
	{
		"COPY args", &CopyArgs{Src: stateid, Dst: other, SrcOffset: 0x1_0000_0002, DstOffset: 0x3_0000_0004, Count: 0x5_0000_0006, Consecutive: true},
		slices.Concat(stateidBytes, otherBytes, words(1, 2, 3, 4, 5, 6, 1, 0, 0)),
	},
	{
		"COPY args of another server", &CopyArgs{
			Src: stateid, Dst: other, Synchronous: true,
			Servers: []NetLoc{
				{Type: NetLocName, Name: []byte("name")},
				{Type: NetLocURL, Name: []byte("a/b/c")},
				{Type: NetLocAddress, NetID: []byte("tcp"), Name: []byte("10.0.0.1.8.1")},
			},
		},
		slices.Concat(stateidBytes, otherBytes, words(0, 0, 0, 0, 0, 0, 0, 1, 3),
			words(1), nameBytes, words(2), linkBytes, words(3, 3), []byte("tcp\x00"), words(12), []byte("10.0.0.1.8.1")),
	},
	{
		"COPY", &CopyRes{Count: 0x1_0000_0002, Verf: verf, Consecutive: true, Synchronous: true},
		okBytes(words(0, 1, 2, 0), verfBytes, words(1, 1)),
	},
	{
		"COPY that goes on", &CopyRes{GoesOn: true, Callback: stateid, Count: 3, Committed: FileSync, Verf: verf},
		okBytes(words(1), stateidBytes, words(0, 3, 2), verfBytes, words(0, 0)),
	},
	{"COPY in another way", &CopyRes{Status: ErrOffloadNoReqs, Synchronous: true}, words(10094, 0, 1)},
	{"COPY refused", &CopyRes{Status: ErrOffloadDenied}, words(10091)},
	{"SEEK args", &SeekArgs{Stateid: stateid, Offset: 0x1_0000_0002, What: ContentHole}, slices.Concat(stateidBytes, words(1, 2, 1))},
	{"SEEK", &SeekRes{EOF: true, Offset: 0x1_0000_0002}, okBytes(words(1, 1, 2))},
	{"SEEK refused", &SeekRes{Status: ErrNXIO}, words(6)},
}

// A server is named in one of three ways, and a COPY goes on as at most one other.
func TestRangesRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		msg   message
		bytes []byte
	}{
		"a server named in a way that there is not": {&CopyArgs{}, slices.Concat(stateidBytes, otherBytes, words(0, 0, 0, 0, 0, 0, 0, 1, 1, 4, 0))},
		"more servers than bytes":                   {&CopyArgs{}, slices.Concat(stateidBytes, otherBytes, words(0, 0, 0, 0, 0, 0, 0, 1, 1<<31, 1, 0))},
		"two copies that go on":                     {&CopyRes{}, okBytes(words(2), stateidBytes, otherBytes, words(0, 3, 2), verfBytes, words(0, 0))},
	} {
		d := xdr.NewDecoder(tt.bytes)
		if tt.msg.Decode(&d); d.Err() == nil {
			t.Errorf("%s: decoded %+v", name, tt.msg)
		}
	}
}
