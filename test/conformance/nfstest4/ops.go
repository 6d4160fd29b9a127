package nfstest4

import (
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
)

func plain(num nfs4.OpNum) op { return op{num, nil, &nfs4.StatusRes{}} }

func sequence(args nfs4.SequenceArgs) op {
	return op{nfs4.OpSequence, &args, &nfs4.SequenceRes{}}
}

func exchangeID(args nfs4.ExchangeIDArgs) op {
	return op{nfs4.OpExchangeID, &args, &nfs4.ExchangeIDRes{}}
}

func createSession(args nfs4.CreateSessionArgs) op {
	return op{nfs4.OpCreateSession, &args, &nfs4.CreateSessionRes{}}
}

func destroySession(id nfs4.SessionID) op {
	return op{nfs4.OpDestroySession, &nfs4.DestroySessionArgs{SessionID: id}, &nfs4.StatusRes{}}
}

func destroyClientID(id uint64) op {
	return op{nfs4.OpDestroyClientID, &nfs4.DestroyClientIDArgs{ClientID: id}, &nfs4.StatusRes{}}
}

func bindConn(id nfs4.SessionID, dir nfs4.ConnDir) op {
	return op{nfs4.OpBindConnToSession, &nfs4.BindConnToSessionArgs{SessionID: id, Dir: dir}, &nfs4.BindConnToSessionRes{}}
}

func reclaimComplete(oneFS bool) op {
	return op{nfs4.OpReclaimComplete, &nfs4.ReclaimCompleteArgs{OneFS: oneFS}, &nfs4.StatusRes{}}
}

func putrootfh() op { return plain(nfs4.OpPutrootfh) }
func lookupp() op   { return plain(nfs4.OpLookupp) }
func savefh() op    { return plain(nfs4.OpSavefh) }
func restorefh() op { return plain(nfs4.OpRestorefh) }
func getfh() op     { return op{nfs4.OpGetfh, nil, &nfs4.GetfhRes{}} }

func putfh(fh nfs4.FH) op {
	return op{nfs4.OpPutfh, &nfs4.PutfhArgs{FH: fh}, &nfs4.StatusRes{}}
}

func lookup(name string) op {
	return op{nfs4.OpLookup, &nfs4.NameArgs{Name: []byte(name)}, &nfs4.StatusRes{}}
}

func getattr(attrs nfs4.Bitmap) op {
	return op{nfs4.OpGetattr, &nfs4.GetattrArgs{Request: attrs}, &nfs4.GetattrRes{}}
}

func getattrs(attrs ...uint32) op { return getattr(nfs4.BitmapOf(attrs...)) }

func setattr(id nfs4.Stateid, attr nfs4.Sattr) op {
	return op{nfs4.OpSetattr, &nfs4.SetattrArgs{Stateid: id, Attr: attr}, &nfs4.SetattrRes{}}
}

func verify(attr nfs4.Fattr) op {
	return op{nfs4.OpVerify, &nfs4.VerifyArgs{Attr: attr}, &nfs4.StatusRes{}}
}

func nverify(attr nfs4.Fattr) op {
	return op{nfs4.OpNverify, &nfs4.VerifyArgs{Attr: attr}, &nfs4.StatusRes{}}
}

func access(bits uint32) op {
	return op{nfs4.OpAccess, &nfs4.AccessArgs{Access: bits}, &nfs4.AccessRes{}}
}

func create(args nfs4.CreateArgs) op {
	return op{nfs4.OpCreate, &args, &nfs4.CreateRes{}}
}

func mkdir(name string) op {
	return create(nfs4.CreateArgs{Type: nfs4.TypeDir, Name: []byte(name), Attr: mode(0o755)})
}

func symlink(name, target string) op {
	return create(nfs4.CreateArgs{Type: nfs4.TypeLnk, Name: []byte(name), Link: []byte(target)})
}

func remove(name string) op {
	return op{nfs4.OpRemove, &nfs4.NameArgs{Name: []byte(name)}, &nfs4.ChangeRes{}}
}

func rename(from, to string) op {
	return op{nfs4.OpRename, &nfs4.RenameArgs{OldName: []byte(from), NewName: []byte(to)}, &nfs4.RenameRes{}}
}

func link(name string) op {
	return op{nfs4.OpLink, &nfs4.NameArgs{Name: []byte(name)}, &nfs4.ChangeRes{}}
}

func readlink() op { return op{nfs4.OpReadlink, nil, &nfs4.ReadlinkRes{}} }

func readdir(args nfs4.ReaddirArgs) op {
	return op{nfs4.OpReaddir, &args, &nfs4.ReaddirRes{}}
}

func secinfo(name string) op {
	return op{nfs4.OpSecinfo, &nfs4.NameArgs{Name: []byte(name)}, &nfs4.SecinfoRes{}}
}

func secinfoNoName(style nfs4.SecinfoStyle) op {
	return op{nfs4.OpSecinfoNoName, &nfs4.SecinfoNoNameArgs{Style: style}, &nfs4.SecinfoRes{}}
}

func open(args nfs4.OpenArgs) op {
	return op{nfs4.OpOpen, &args, &nfs4.OpenRes{}}
}

func closeOp(id nfs4.Stateid) op {
	return op{nfs4.OpClose, &nfs4.CloseArgs{Stateid: id}, &nfs4.StateidRes{}}
}

func downgrade(id nfs4.Stateid, access, deny uint32) op {
	return op{nfs4.OpOpenDowngrade, &nfs4.OpenDowngradeArgs{Stateid: id, ShareAccess: access, ShareDeny: deny}, &nfs4.StateidRes{}}
}

func read(id nfs4.Stateid, offset uint64, count uint32) op {
	return op{nfs4.OpRead, &nfs4.ReadArgs{Stateid: id, Offset: offset, Count: count}, &nfs4.ReadRes{}}
}

func write(id nfs4.Stateid, offset uint64, data string) op {
	return op{nfs4.OpWrite, &nfs4.WriteArgs{Stateid: id, Offset: offset, Stable: nfs4.FileSync, Data: []byte(data)}, &nfs4.WriteRes{}}
}

func commit(offset uint64, count uint32) op {
	return op{nfs4.OpCommit, &nfs4.CommitArgs{Offset: offset, Count: count}, &nfs4.CommitRes{}}
}

func lock(args nfs4.LockArgs) op {
	return op{nfs4.OpLock, &args, &nfs4.LockRes{}}
}

func lockt(args nfs4.LocktArgs) op {
	return op{nfs4.OpLockt, &args, &nfs4.LocktRes{}}
}

func locku(id nfs4.Stateid, offset, length uint64) op {
	return op{nfs4.OpLocku, &nfs4.LockuArgs{Type: nfs4.LockWrite, Stateid: id, Offset: offset, Length: length}, &nfs4.StateidRes{}}
}

func testStateid(ids ...nfs4.Stateid) op {
	return op{nfs4.OpTestStateid, &nfs4.TestStateidArgs{Stateids: ids}, &nfs4.TestStateidRes{}}
}

func freeStateid(id nfs4.Stateid) op {
	return op{nfs4.OpFreeStateid, &nfs4.FreeStateidArgs{Stateid: id}, &nfs4.StatusRes{}}
}

func delegreturn(id nfs4.Stateid) op {
	return op{nfs4.OpDelegreturn, &nfs4.DelegreturnArgs{Stateid: id}, &nfs4.StatusRes{}}
}

func backchannelCtl(program uint32) op {
	parms := []nfs4.CallbackSec{{Flavor: rpc.AuthSys}}
	return op{nfs4.OpBackchannelCtl, &nfs4.BackchannelCtlArgs{CBProgram: program, SecParms: parms}, &nfs4.StatusRes{}}
}

// mode is an Sattr that sets the mode.
func mode(m uint32) nfs4.Sattr {
	return nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrMode), Mode: m}
}

// size is an Sattr that sets the size.
func size(n uint64) nfs4.Sattr {
	return nfs4.Sattr{Mask: nfs4.BitmapOf(nfs4.AttrSize), Size: n}
}
