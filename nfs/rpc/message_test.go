package rpc

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/podnas/podnas/nfs/xdr"
)

// A GETATTR call of uid 1000, gid 100, groups 4 and 24, on host "pod", by hand
// from RFC 5531 sections 8.2, 9 and appendix A.
var callBytes = []byte{
	0x12, 0x34, 0x56, 0x78, // xid
	0, 0, 0, 0, // CALL
	0, 0, 0, 2, // RPC version
	0x00, 0x01, 0x86, 0xa3, // program 100003
	0, 0, 0, 3, // version
	0, 0, 0, 1, // procedure
	0, 0, 0, 1, // AUTH_SYS
	0, 0, 0, 32, // length of the body
	0, 0, 0, 9, // stamp
	0, 0, 0, 3, 'p', 'o', 'd', 0, // machine name
	0, 0, 0x03, 0xe8, // uid
	0, 0, 0, 100, // gid
	0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 24, // groups
	0, 0, 0, 0, 0, 0, 0, 0, // verifier: AUTH_NONE, empty
}

func testCred() SysCred {
	cred := SysCred{Stamp: 9, MachineName: []byte("pod"), UID: 1000, GID: 100}
	cred.SetGroups(4, 24)
	return cred
}

func TestCallHeader(t *testing.T) {
	cred := testCred()
	want := CallHeader{
		XID: 0x12345678, RPCVersion: 2, Prog: 100003, Vers: 3, Proc: 1,
		Cred: cred.Auth(), Verf: Auth{Body: []byte{}},
	}
	if got := want.Append(nil); !bytes.Equal(got, callBytes) {
		t.Errorf("appended\n%x, want\n%x", got, callBytes)
	}

	args := []byte("args")
	d := xdr.NewDecoder(append(slices.Clone(callBytes), args...))
	var got CallHeader
	got.Decode(&d)
	if d.Err() != nil || !reflect.DeepEqual(got, want) || !bytes.Equal(d.Rest(), args) {
		t.Errorf("decoded %+v, %v; want %+v", got, d.Err(), want)
	}
	d = xdr.NewDecoder(got.Cred.Body)
	var sys SysCred
	sys.Decode(&d)
	if err := d.Finish(); err != nil || !reflect.DeepEqual(sys, cred) {
		t.Errorf("credential %+v, %v; want %+v", sys, err, cred)
	}
	if !slices.Equal(sys.Groups(), []uint32{4, 24}) {
		t.Errorf("groups %v", sys.Groups())
	}
}

// A server must be able to answer a call of another RPC version, whatever
// follows the version.
func TestCallHeaderOtherVersion(t *testing.T) {
	d := xdr.NewDecoder([]byte{0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 3})
	var h CallHeader
	h.Decode(&d)
	if d.Err() != nil || h.XID != 7 || h.RPCVersion != 3 {
		t.Errorf("%+v, %v", h, d.Err())
	}
}

func TestCallHeaderErrors(t *testing.T) {
	reply := slices.Clone(callBytes)
	reply[7] = 1
	longCred := slices.Clone(callBytes)
	longCred[30], longCred[31] = 1, 0x91 // 401
	tests := []struct {
		name string
		rec  []byte
		want error
	}{
		{"empty", nil, xdr.ErrShort},
		{"a reply", reply, ErrReply},
		{"ends in the credential", callBytes[:40], xdr.ErrShort},
		{"no verifier", callBytes[:64], xdr.ErrShort},
		{"credential of 401 bytes", longCred, xdr.ErrTooLong},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := xdr.NewDecoder(tt.rec)
			var h CallHeader
			h.Decode(&d)
			if !errors.Is(d.Err(), tt.want) {
				t.Errorf("err = %v, want %v", d.Err(), tt.want)
			}
		})
	}
}

func TestSysCredLimits(t *testing.T) {
	var c SysCred
	c.SetGroups(make([]uint32, 17)...)
	if len(c.Groups()) != MaxGroups {
		t.Errorf("%d groups", len(c.Groups()))
	}
	body := c.Append(nil)
	d := xdr.NewDecoder(body)
	c.Decode(&d)
	if err := d.Finish(); err != nil {
		t.Errorf("16 groups: %v", err)
	}
	// The number of groups is the fifth word when the machine has no name.
	xdr.Patch(body, 16, 17)
	d = xdr.NewDecoder(append(body, 0, 0, 0, 0))
	c.Decode(&d)
	if !errors.Is(d.Err(), xdr.ErrTooLong) {
		t.Errorf("17 groups: %v", d.Err())
	}
	long := SysCred{MachineName: make([]byte, 256)}
	d = xdr.NewDecoder(long.Append(nil))
	c.Decode(&d)
	if !errors.Is(d.Err(), xdr.ErrTooLong) {
		t.Errorf("machine name of 256 bytes: %v", d.Err())
	}
}

func TestReplyHeader(t *testing.T) {
	none := Auth{Body: []byte{}}
	tests := []struct {
		name   string
		header ReplyHeader
		bytes  []byte
		err    string
	}{
		{
			"success",
			ReplyHeader{XID: 5, Verf: none},
			[]byte{0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
			"",
		},
		{
			"program unavailable",
			ReplyHeader{XID: 5, Verf: none, Accept: ProgUnavail},
			[]byte{0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
			"rpc: no such program",
		},
		{
			"program mismatch",
			ReplyHeader{XID: 5, Verf: none, Accept: ProgMismatch, Low: 3, High: 4},
			[]byte{0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4},
			"rpc: the server has versions 3 to 4 of the program",
		},
		{
			"procedure unavailable",
			ReplyHeader{XID: 5, Verf: none, Accept: ProcUnavail},
			[]byte{0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3},
			"rpc: no such procedure",
		},
		{
			"garbage arguments, with a verifier",
			ReplyHeader{XID: 5, Verf: Auth{Flavor: AuthShort, Body: []byte{0xab}}, Accept: GarbageArgs},
			[]byte{0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0xab, 0, 0, 0, 0, 0, 0, 4},
			"rpc: the server can't decode the arguments",
		},
		{
			"system error",
			ReplyHeader{XID: 5, Verf: none, Accept: SystemErr},
			[]byte{0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5},
			"rpc: system error in the server",
		},
		{
			"RPC mismatch",
			ReplyHeader{XID: 5, Stat: MsgDenied, Reject: RPCMismatch, Low: 2, High: 2},
			[]byte{0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2},
			"rpc: denied, the server has RPC versions 2 to 2",
		},
		{
			"authentication error",
			ReplyHeader{XID: 5, Stat: MsgDenied, Reject: AuthError, Auth: AuthTooWeak},
			[]byte{0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5},
			"rpc: denied, authentication error 5",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.header.Append(nil); !bytes.Equal(got, tt.bytes) {
				t.Errorf("appended %x, want %x", got, tt.bytes)
			}
			d := xdr.NewDecoder(tt.bytes)
			var got ReplyHeader
			got.Decode(&d)
			if err := d.Finish(); err != nil || !reflect.DeepEqual(got, tt.header) {
				t.Errorf("decoded %+v, %v; want %+v", got, err, tt.header)
			}
			err := got.Err()
			if tt.err == "" {
				if err != nil {
					t.Errorf("err = %v", err)
				}
				return
			}
			var rpcErr *RPCError
			if !errors.As(err, &rpcErr) || rpcErr.Error() != tt.err {
				t.Errorf("err = %v, want %q", err, tt.err)
			}
		})
	}
}

func TestReplyHeaderUnknownValues(t *testing.T) {
	for name, rec := range map[string][]byte{
		"a call":        {0, 0, 0, 5, 0, 0, 0, 0},
		"reply_stat 2":  {0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 2},
		"accept_stat 6": {0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6},
		"reject_stat 2": {0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2},
	} {
		d := xdr.NewDecoder(rec)
		var h ReplyHeader
		h.Decode(&d)
		if !errors.Is(d.Err(), xdr.ErrValue) {
			t.Errorf("%s: err = %v", name, d.Err())
		}
	}
}

func TestCallDecodeAllocs(t *testing.T) {
	n := testing.AllocsPerRun(1000, func() {
		d := xdr.NewDecoder(callBytes)
		var h CallHeader
		h.Decode(&d)
		body := xdr.NewDecoder(h.Cred.Body)
		var sys SysCred
		sys.Decode(&body)
		if d.Err() != nil || body.Err() != nil || sys.UID != 1000 {
			t.Fatal("not decoded")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What decodes must encode to something that decodes to the same.
func FuzzCallHeader(f *testing.F) {
	f.Add(callBytes)
	f.Fuzz(func(t *testing.T, rec []byte) {
		d := xdr.NewDecoder(rec)
		var h CallHeader
		h.Decode(&d)
		if d.Err() != nil || h.RPCVersion != Version {
			return
		}
		again := xdr.NewDecoder(h.Append(nil))
		var h2 CallHeader
		h2.Decode(&again)
		if err := again.Finish(); err != nil || !reflect.DeepEqual(h, h2) {
			t.Fatalf("%+v became %+v, %v", h, h2, err)
		}
		body := xdr.NewDecoder(h.Cred.Body)
		var sys SysCred
		sys.Decode(&body)
		if body.Err() != nil {
			return
		}
		bodyAgain := xdr.NewDecoder(sys.Append(nil))
		var sys2 SysCred
		sys2.Decode(&bodyAgain)
		if err := bodyAgain.Finish(); err != nil || !reflect.DeepEqual(sys, sys2) {
			t.Fatalf("%+v became %+v, %v", sys, sys2, err)
		}
	})
}

func FuzzReplyHeader(f *testing.F) {
	for _, h := range []ReplyHeader{
		{XID: 1},
		{XID: 2, Accept: ProgMismatch, Low: 3, High: 3},
		{XID: 3, Stat: MsgDenied, Low: 2, High: 2},
		{XID: 4, Stat: MsgDenied, Reject: AuthError, Auth: AuthBadCred},
	} {
		f.Add(h.Append(nil))
	}
	f.Fuzz(func(t *testing.T, rec []byte) {
		d := xdr.NewDecoder(rec)
		var h ReplyHeader
		h.Decode(&d)
		if d.Err() != nil {
			return
		}
		again := xdr.NewDecoder(h.Append(nil))
		var h2 ReplyHeader
		h2.Decode(&again)
		if err := again.Finish(); err != nil || !reflect.DeepEqual(h, h2) {
			t.Fatalf("%+v became %+v, %v", h, h2, err)
		}
	})
}
