package nfs4

import (
	"slices"

	"github.com/podnas/podnas/nfs/rpc"
)

var (
	session      = SessionID{0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf}
	sessionBytes = words(0xa0a1a2a3, 0xa4a5a6a7, 0xa8a9aaab, 0xacadaeaf)

	fore = ChannelAttrs{
		HeaderPadSize: 1, MaxRequestSize: 2, MaxResponseSize: 3, MaxResponseSizeCached: 4, MaxOperations: 5, MaxRequests: 6,
	}
	foreBytes = words(1, 2, 3, 4, 5, 6, 0)
	back      = ChannelAttrs{
		MaxRequestSize: 4096, MaxResponseSize: 4096, MaxOperations: 2, MaxRequests: 16, RDMA: true, RDMAIRD: 7,
	}
	backBytes = words(0, 4096, 4096, 0, 2, 16, 1, 7)

	secParms = []CallbackSec{
		{Flavor: rpc.AuthSys, Sys: sysCred()},
		{Flavor: rpc.AuthNone},
		{Flavor: rpc.AuthGSS, GSSService: 2, GSSFromServer: []byte("s"), GSSFromClient: []byte("cl")},
	}
	secParmsBytes = slices.Concat(
		words(3),
		words(1, 0x5eed, 4), []byte("node"), words(1000, 100, 2, 27, 44),
		words(0),
		words(6, 2, 1), []byte("s\x00\x00\x00"), words(2), []byte("cl\x00\x00"),
	)

	impl      = ImplID{Domain: []byte("kernel.org"), Name: []byte("Linux"), Date: Time{1, 2}}
	implBytes = slices.Concat(words(10), []byte("kernel.org\x00\x00"), words(5), []byte("Linux\x00\x00\x00"), words(0, 1, 2))
)

func sysCred() rpc.SysCred {
	cred := rpc.SysCred{Stamp: 0x5eed, MachineName: []byte("node"), UID: 1000, GID: 100}
	cred.SetGroups(27, 44)
	return cred
}

var sessionTests = []wireTest{
	{
		"SEQUENCE args", &SequenceArgs{SessionID: session, SequenceID: 1, SlotID: 2, HighestSlotID: 3, CacheThis: true},
		slices.Concat(sessionBytes, words(1, 2, 3, 1)),
	},
	{
		"SEQUENCE", &SequenceRes{
			SessionID: session, SequenceID: 1, SlotID: 2, HighestSlotID: 3, TargetHighestSlotID: 4,
			StatusFlags: SeqRestartReclaimNeeded | SeqCBPathDown,
		},
		okBytes(sessionBytes, words(1, 2, 3, 4, 0x101)),
	},
	{"SEQUENCE refused", &SequenceRes{Status: ErrBadSession}, words(10052)},
	{
		"CREATE_SESSION args", &CreateSessionArgs{
			ClientID: 0x0102030405060708, SequenceID: 9, Flags: SessionPersist | SessionConnBackChan,
			Fore: fore, Back: back, CBProgram: 0x4000_0000, SecParms: secParms,
		},
		slices.Concat(words(0x01020304, 0x05060708, 9, 3), foreBytes, backBytes, words(0x4000_0000), secParmsBytes),
	},
	{
		"CREATE_SESSION", &CreateSessionRes{SessionID: session, SequenceID: 9, Flags: SessionConnBackChan, Fore: fore, Back: back},
		okBytes(sessionBytes, words(9, 2), foreBytes, backBytes),
	},
	{"CREATE_SESSION refused", &CreateSessionRes{Status: ErrStaleClientID}, words(10022)},
	{"DESTROY_SESSION args", &DestroySessionArgs{SessionID: session}, sessionBytes},
	{
		"BIND_CONN_TO_SESSION args", &BindConnToSessionArgs{SessionID: session, Dir: ConnBackOrBoth},
		slices.Concat(sessionBytes, words(7, 0)),
	},
	{
		"BIND_CONN_TO_SESSION", &BindConnToSessionRes{SessionID: session, Dir: ConnBoth, RDMA: true},
		okBytes(sessionBytes, words(3, 1)),
	},
	{"BIND_CONN_TO_SESSION refused", &BindConnToSessionRes{Status: ErrBadSession}, words(10052)},
	{
		"BACKCHANNEL_CTL args", &BackchannelCtlArgs{CBProgram: 0x4000_0000, SecParms: secParms},
		slices.Concat(words(0x4000_0000), secParmsBytes),
	},
	{"BACKCHANNEL_CTL args without security", &BackchannelCtlArgs{CBProgram: 1}, words(1, 0)},
	{"RECLAIM_COMPLETE args", &ReclaimCompleteArgs{OneFS: true}, words(1)},
	{
		"EXCHANGE_ID args", &ExchangeIDArgs{
			Verf: verf, OwnerID: []byte("Linux NFSv4.1 n1"), Flags: ExchangeSuppMovedRefer | ExchangeBindPrincStateid,
			HasImpl: true, Impl: impl,
		},
		slices.Concat(verfBytes, words(16), []byte("Linux NFSv4.1 n1"), words(0x101, 0, 1), implBytes),
	},
	{
		"EXCHANGE_ID args with SP4_MACH_CRED", &ExchangeIDArgs{Verf: verf, OwnerID: name, StateProtect: StateProtect{
			How: ProtectMachCred, MustEnforce: BitmapOf(uint32(OpExchangeID)), MustAllow: BitmapOf(uint32(OpClose)),
		}},
		slices.Concat(verfBytes, nameBytes, words(0, 1, 2, 0, 1<<10, 1, 1<<4, 0)),
	},
	{
		"EXCHANGE_ID args with SP4_SSV", &ExchangeIDArgs{Verf: verf, OwnerID: name, StateProtect: StateProtect{How: ProtectSSV}},
		slices.Concat(verfBytes, nameBytes, words(0, 2, 0, 0, 0, 0, 0, 0, 0)),
	},
	{
		"EXCHANGE_ID", &ExchangeIDRes{
			ClientID: 0x0102030405060708, SequenceID: 9, Flags: ExchangeConfirmedR | ExchangeUseNonPNFS,
			MinorID: 5, MajorID: name, Scope: link, HasImpl: true, Impl: impl,
		},
		okBytes(words(0x01020304, 0x05060708, 9, 0x8001_0000, 0, 0, 5), nameBytes, linkBytes, words(1), implBytes),
	},
	{
		"EXCHANGE_ID without implementation", &ExchangeIDRes{
			ClientID: 2, SequenceID: 9, MajorID: name, Scope: link,
			StateProtect: StateProtect{How: ProtectMachCred, MustAllow: Bitmap{1}},
		},
		okBytes(words(0, 2, 9, 0, 1, 0, 1, 1, 0, 0), nameBytes, linkBytes, words(0)),
	},
	{"EXCHANGE_ID refused", &ExchangeIDRes{Status: ErrClidInUse}, words(10017)},
}
