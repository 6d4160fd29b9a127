package nfs4

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

type message interface {
	Append(b []byte) []byte
	Decode(d *xdr.Decoder)
}

// wireTest is a message and its bytes, written by hand from RFC 8881's XDR (RFC 5662).
type wireTest struct {
	name  string
	msg   message
	bytes []byte
}

// words are unsigned integers on the wire.
func words(vs ...uint32) (b []byte) {
	for _, v := range vs {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

// Pieces that the tests of the families put together.
var (
	fh      = FH{0xf1, 0xf2, 0xf3, 0xf4, 0xf5}
	fhBytes = []byte{0, 0, 0, 5, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0, 0, 0}

	name      = []byte("name")
	nameBytes = []byte{0, 0, 0, 4, 'n', 'a', 'm', 'e'}
	link      = []byte("a/b/c")
	linkBytes = []byte{0, 0, 0, 5, 'a', '/', 'b', '/', 'c', 0, 0, 0}

	stateid      = Stateid{Seqid: 7, Other: [12]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}
	stateidBytes = []byte{0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}

	owner      = StateOwner{ClientID: 0x0102030405060708, Owner: []byte("me")}
	ownerBytes = []byte{1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 2, 'm', 'e', 0, 0}

	change      = ChangeInfo{Atomic: true, Before: 0x1_0000_0002, After: 0x1_0000_0003}
	changeBytes = words(1, 1, 2, 1, 3)

	verf      = Verifier{8, 7, 6, 5, 4, 3, 2, 1}
	verfBytes = []byte{8, 7, 6, 5, 4, 3, 2, 1}

	// Size, mode, owner and mtime: bits 4, 33, 36 and 54.
	sattr = Sattr{
		Mask: Bitmap{0x10, 0x0040_0012}, Size: 0x1_0000_0002, Mode: 0o644, Owner: []byte("1000"),
		TimeModify: SetTime{SetToClientTime, Time{-2, 8}},
	}
	sattrBytes = slices.Concat(
		words(2, 0x10, 0x0040_0012, 8+4+8+16), words(1, 2), words(0o644), []byte{0, 0, 0, 4, '1', '0', '0', '0'},
		words(1, 0xffff_ffff, 0xffff_fffe, 8),
	)

	attrSet      = Bitmap{0x10, 2}
	attrSetBytes = words(2, 0x10, 2)

	ace      = ACE{Type: ACEAllowed, Flag: 1, Mask: 2, Who: []byte("EVERYONE@")}
	aceBytes = slices.Concat(words(0, 1, 2, 9), []byte("EVERYONE@\x00\x00\x00"))
)

func okBytes(parts ...[]byte) []byte {
	return slices.Concat(words(0), slices.Concat(parts...))
}

// wireTests are those of all families.
func wireTests() []wireTest {
	return slices.Concat(commonTests, namesTests, ioTests, attrTests, openTests, lockTests, sessionTests, callbackTests, rangesTests, xattrTests)
}

var commonTests = []wireTest{
	{
		"COMPOUND args", &CompoundArgs{Tag: []byte("tag"), MinorVersion: 1, NumOps: 3},
		[]byte{0, 0, 0, 3, 't', 'a', 'g', 0, 0, 0, 0, 1, 0, 0, 0, 3},
	},
	{
		"COMPOUND", &CompoundRes{Status: ErrNoEnt, Tag: []byte("tag"), NumOps: 2},
		[]byte{0, 0, 0, 2, 0, 0, 0, 3, 't', 'a', 'g', 0, 0, 0, 0, 2},
	},
	{"a status", &StatusRes{Status: ErrBadXDR}, words(10036)},
	{"a stateid", &StateidRes{Stateid: stateid}, okBytes(stateidBytes)},
	{"no stateid", &StateidRes{Status: ErrOldStateid}, words(10024)},
	{"stateid args", &StateidArgs{Stateid: stateid}, stateidBytes},
	{"name args", &NameArgs{Name: name}, nameBytes},
	{"a change", &ChangeRes{Change: change}, okBytes(changeBytes)},
	{"no change", &ChangeRes{Status: ErrNotEmpty}, words(66)},
	{"client id args", &ClientIDArgs{ClientID: 0x0102030405060708}, []byte{1, 2, 3, 4, 5, 6, 7, 8}},
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
	longOwner := StateOwner{Owner: make([]byte, OpaqueLimit+1)}
	tests := []struct {
		name string
		msg  message
		want error
	}{
		{"result's tag", &CompoundRes{Tag: make([]byte, MaxTag+1)}, xdr.ErrTooLong},
		{"callback's tag", &CBCompoundArgs{Tag: make([]byte, MaxTag+1)}, xdr.ErrTooLong},
		{"handle", &PutfhArgs{FH: longFH}, xdr.ErrTooLong},
		{"result's handle", &GetfhRes{FH: longFH}, xdr.ErrTooLong},
		{"recalled handle", &CBRecallArgs{FH: longFH}, xdr.ErrTooLong},
		{"handle among attributes", &GetattrRes{Attr: Attrs{Mask: BitmapOf(AttrFilehandle), Filehandle: longFH}}, xdr.ErrTooLong},
		{"name", &LookupArgs{Name: longPath}, xdr.ErrTooLong},
		{"second name", &RenameArgs{NewName: longPath}, xdr.ErrTooLong},
		{"symlink's path", &CreateArgs{Type: TypeLnk, Link: make([]byte, MaxData+1)}, xdr.ErrTooLong},
		{"read link", &ReadlinkRes{Link: longPath}, xdr.ErrTooLong},
		{"entry's name", &ReaddirRes{Entries: []Entry{{Name: longPath}}}, xdr.ErrTooLong},
		{"opened name", &OpenArgs{Name: longPath}, xdr.ErrTooLong},
		{"open owner", &OpenArgs{Owner: longOwner}, xdr.ErrTooLong},
		{"lock owner", &LockArgs{Type: LockRead, NewOwner: true, Owner: longOwner}, xdr.ErrTooLong},
		{"denied owner", &LockRes{Status: ErrDenied, Denied: LockDenied{Type: LockRead, Owner: longOwner}}, xdr.ErrTooLong},
		{"file's owner", &SetattrArgs{Attr: Sattr{Mask: BitmapOf(AttrOwner), Owner: longPath}}, xdr.ErrTooLong},
		{"attributes", &VerifyArgs{Attr: Fattr{Vals: make([]byte, MaxAttrs+1)}}, xdr.ErrTooLong},
		{"client's owner", &ExchangeIDArgs{OwnerID: longOwner.Owner}, xdr.ErrTooLong},
		{"server's owner", &ExchangeIDRes{MajorID: longOwner.Owner}, xdr.ErrTooLong},
		{"scope", &ExchangeIDRes{Scope: longOwner.Owner}, xdr.ErrTooLong},
		{"security of callbacks", &CreateSessionArgs{SecParms: make([]CallbackSec, MaxSecParms+1)}, xdr.ErrTooLong},
		{"flavors", &SecinfoRes{Flavors: make([]Secinfo, MaxSecParms+1)}, xdr.ErrTooLong},
		{"written data", &WriteArgs{Data: make([]byte, MaxData+1)}, xdr.ErrTooLong},
		{"read data", &ReadRes{Data: make([]byte, MaxData+1)}, xdr.ErrTooLong},
		{"stable_how4", &WriteArgs{Stable: 3}, xdr.ErrValue},
		{"committed", &WriteRes{Committed: 3}, xdr.ErrValue},
		{"createmode4", &OpenArgs{Create: true, Mode: 4}, xdr.ErrValue},
		{"open_claim_type4", &OpenArgs{Claim: 7}, xdr.ErrValue},
		{"open_delegation_type4", &OpenArgs{Claim: ClaimPrevious, DelegateType: 4}, xdr.ErrValue},
		{"delegation", &OpenRes{Delegation: Delegation{Type: 4}}, xdr.ErrValue},
		{"why_no_delegation4", &OpenRes{Delegation: Delegation{Type: DelegateNoneExt, Why: 9}}, xdr.ErrValue},
		{"limit_by4", &OpenRes{Delegation: Delegation{Type: DelegateWrite, Limit: SpaceLimit{By: 3}}}, xdr.ErrValue},
		{"LOCK's nfs_lock_type4", &LockArgs{Type: 0}, xdr.ErrValue},
		{"LOCKT's nfs_lock_type4", &LocktArgs{Type: 5}, xdr.ErrValue},
		{"LOCKU's nfs_lock_type4", &LockuArgs{Type: 5}, xdr.ErrValue},
		{"atime's time_how4", &SetattrArgs{Attr: Sattr{Mask: BitmapOf(AttrTimeAccessSet), TimeAccess: SetTime{How: 2}}}, xdr.ErrValue},
		{"state_protect_how4", &ExchangeIDArgs{StateProtect: StateProtect{How: 3}}, xdr.ErrValue},
		{"state_protect_how4 of a server", &ExchangeIDRes{StateProtect: StateProtect{How: ProtectSSV}}, xdr.ErrValue},
		{"cb_secflavor", &BackchannelCtlArgs{SecParms: []CallbackSec{{Flavor: rpc.AuthDH}}}, xdr.ErrValue},
		{"channel_dir_from_client4", &BindConnToSessionArgs{Dir: 4}, xdr.ErrValue},
		{"channel_dir_from_server4", &BindConnToSessionRes{Dir: 7}, xdr.ErrValue},
		{"secinfo_style4", &SecinfoNoNameArgs{Style: 2}, xdr.ErrValue},
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

// A length from the peer allocates nothing that the record doesn't hold.
func TestDecodeCounts(t *testing.T) {
	const huge = 0x0fff_ffff
	session := make([]byte, SessionIDSize)
	for _, tt := range []wireTest{
		{"stateids", &TestStateidArgs{}, words(huge)},
		{"statuses", &TestStateidRes{}, words(0, huge)},
		{"referring lists", &CBSequenceArgs{}, slices.Concat(session, words(0, 0, 0, 0, huge))},
		{"referring calls", &CBSequenceArgs{}, slices.Concat(session, words(0, 0, 0, 0, 1), session, words(huge))},
		{"bitmap", &GetattrArgs{}, words(huge)},
		{"algorithms", &ExchangeIDArgs{}, slices.Concat(verfBytes, words(0, 0, 2, 0, 0, huge))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := xdr.NewDecoder(tt.bytes)
			tt.msg.Decode(&d)
			if d.Err() == nil || allocated(reflect.ValueOf(tt.msg)) > 1<<10 {
				t.Errorf("err = %v, %d bytes allocated", d.Err(), allocated(reflect.ValueOf(tt.msg)))
			}
		})
	}
}

// The head of a result is written before its operations are known.
func TestCompoundPatch(t *testing.T) {
	for _, tag := range []string{"", "a", "four", "five5"} {
		res := CompoundRes{Tag: []byte(tag)}
		b := res.Append([]byte("head"))
		b = OpPutrootfh.Append(b)
		res.Status, res.NumOps = ErrNoEnt, 3
		res.Patch(b, 4)
		if want := OpPutrootfh.Append(res.Append([]byte("head"))); !bytes.Equal(b, want) {
			t.Errorf("tag %q: %x, want %x", tag, b, want)
		}
	}
}

// The operations of a COMPOUND are consumed one by one.
func TestWalk(t *testing.T) {
	rec := (&CompoundArgs{MinorVersion: 1, NumOps: 3}).Append(nil)
	rec = OpPutfh.Append(rec)
	rec = (&PutfhArgs{FH: fh}).Append(rec)
	rec = OpLookup.Append(rec)
	rec = (&LookupArgs{Name: name}).Append(rec)
	rec = OpGetfh.Append(rec)

	d := xdr.NewDecoder(rec)
	var head CompoundArgs
	head.Decode(&d)
	var ops []OpNum
	for range head.NumOps {
		var op OpNum
		op.Decode(&d)
		ops = append(ops, op)
		switch op {
		case OpPutfh:
			var a PutfhArgs
			if a.Decode(&d); !bytes.Equal(a.FH, fh) {
				t.Errorf("PUTFH of %x", a.FH)
			}
		case OpLookup:
			var a LookupArgs
			if a.Decode(&d); !bytes.Equal(a.Name, name) {
				t.Errorf("LOOKUP of %q", a.Name)
			}
		}
	}
	if err := d.Finish(); err != nil || !slices.Equal(ops, []OpNum{OpPutfh, OpLookup, OpGetfh}) {
		t.Errorf("%v, %v", ops, err)
	}
}

func TestSpecialStateids(t *testing.T) {
	for _, tt := range []struct {
		name  string
		id    Stateid
		bytes []byte
	}{
		{"anonymous", Stateid{}, make([]byte, 16)},
		{"bypass", BypassStateid(), bytes.Repeat([]byte{0xff}, 16)},
		{"current", CurrentStateid(), words(1, 0, 0, 0)},
		{"invalid", InvalidStateid(), words(0xffff_ffff, 0, 0, 0)},
	} {
		if got := tt.id.append(nil); !bytes.Equal(got, tt.bytes) {
			t.Errorf("%s: %x, want %x", tt.name, got, tt.bytes)
		}
	}
}

func TestStrings(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{OK.String(), "NFS4_OK"},
		{ErrBadXDR.String(), "NFS4ERR_BADXDR"},
		{ErrXattr2Big.String(), "NFS4ERR_XATTR2BIG"},
		{Status(10073).String(), "nfsstat4(10073)"},
		{OpAccess.String(), "ACCESS"},
		{OpBindConnToSession.String(), "BIND_CONN_TO_SESSION"},
		{OpIllegal.String(), "ILLEGAL"},
		{OpNum(2).String(), "nfs_opnum4(2)"},
		{OpCBNotifyLock.String(), "CB_NOTIFY_LOCK"},
		{CBOpNum(16).String(), "nfs_cb_opnum4(16)"},
	} {
		if tt.got != tt.want {
			t.Errorf("%q, want %q", tt.got, tt.want)
		}
	}
	// The operations are those of the three RFCs, without a gap.
	for op := OpAccess; op <= OpRemovexattr; op++ {
		if op.String()[0] == 'n' {
			t.Errorf("operation %d has no name", op)
		}
	}
	for op := OpCBGetattr; op <= OpCBOffload; op++ {
		if op.String()[0] == 'n' {
			t.Errorf("operation %d of the callback program has no name", op)
		}
	}
}
