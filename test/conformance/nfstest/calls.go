package nfstest

import (
	"github.com/podnas/podnas/nfs/nfs3"
)

// The calls of a test: each makes the client's call, and ends the test without a
// proper reply. If env has a shorter form of a call, its name here ends in Res.

func (e *env) getattr(fh nfs3.FH) nfs3.GetattrRes {
	e.Helper()
	res, err := e.client.Getattr(e.Context(), fh)
	e.answered("GETATTR", err)
	return res
}

func (e *env) setattrRes(args nfs3.SetattrArgs) nfs3.SetattrRes {
	e.Helper()
	res, err := e.client.Setattr(e.Context(), args)
	e.answered("SETATTR", err)
	return res
}

func (e *env) lookup(dir nfs3.FH, name string) nfs3.LookupRes {
	e.Helper()
	res, err := e.client.Lookup(e.Context(), dir, name)
	e.answered("LOOKUP", err)
	return res
}

func (e *env) access(fh nfs3.FH, access uint32) nfs3.AccessRes {
	e.Helper()
	res, err := e.client.Access(e.Context(), fh, access)
	e.answered("ACCESS", err)
	return res
}

func (e *env) readlink(fh nfs3.FH) nfs3.ReadlinkRes {
	e.Helper()
	res, err := e.client.Readlink(e.Context(), fh)
	e.answered("READLINK", err)
	return res
}

func (e *env) readRes(fh nfs3.FH, offset uint64, count uint32) nfs3.ReadRes {
	e.Helper()
	res, err := e.client.Read(e.Context(), fh, offset, count)
	e.answered("READ", err)
	return res
}

func (e *env) writeRes(fh nfs3.FH, offset uint64, stable nfs3.StableHow, data []byte) nfs3.WriteRes {
	e.Helper()
	res, err := e.client.Write(e.Context(), fh, offset, stable, data)
	e.answered("WRITE", err)
	return res
}

func (e *env) createRes(args nfs3.CreateArgs) nfs3.CreateRes {
	e.Helper()
	res, err := e.client.Create(e.Context(), args)
	e.answered("CREATE", err)
	return res
}

func (e *env) mkdirRes(dir nfs3.FH, name string) nfs3.MkdirRes {
	e.Helper()
	res, err := e.client.Mkdir(e.Context(), dir, name, mode(0o755))
	e.answered("MKDIR", err)
	return res
}

func (e *env) symlinkRes(dir nfs3.FH, name, target string) nfs3.SymlinkRes {
	e.Helper()
	res, err := e.client.Symlink(e.Context(), dir, name, target)
	e.answered("SYMLINK", err)
	return res
}

func (e *env) mknod(args nfs3.MknodArgs) nfs3.MknodRes {
	e.Helper()
	res, err := e.client.Mknod(e.Context(), args)
	e.answered("MKNOD", err)
	return res
}

func (e *env) remove(dir nfs3.FH, name string) nfs3.RemoveRes {
	e.Helper()
	res, err := e.client.Remove(e.Context(), dir, name)
	e.answered("REMOVE", err)
	return res
}

func (e *env) rmdir(dir nfs3.FH, name string) nfs3.RmdirRes {
	e.Helper()
	res, err := e.client.Rmdir(e.Context(), dir, name)
	e.answered("RMDIR", err)
	return res
}

func (e *env) rename(fromDir nfs3.FH, from string, toDir nfs3.FH, to string) nfs3.RenameRes {
	e.Helper()
	res, err := e.client.Rename(e.Context(), fromDir, from, toDir, to)
	e.answered("RENAME", err)
	return res
}

func (e *env) link(fh, dir nfs3.FH, name string) nfs3.LinkRes {
	e.Helper()
	res, err := e.client.Link(e.Context(), fh, dir, name)
	e.answered("LINK", err)
	return res
}

func (e *env) readdir(args nfs3.ReaddirArgs) nfs3.ReaddirRes {
	e.Helper()
	res, err := e.client.Readdir(e.Context(), args)
	e.answered("READDIR", err)
	return res
}

func (e *env) readdirplus(args nfs3.ReaddirplusArgs) nfs3.ReaddirplusRes {
	e.Helper()
	res, err := e.client.Readdirplus(e.Context(), args)
	e.answered("READDIRPLUS", err)
	return res
}

func (e *env) fsstat(fh nfs3.FH) nfs3.FsstatRes {
	e.Helper()
	res, err := e.client.Fsstat(e.Context(), fh)
	e.answered("FSSTAT", err)
	return res
}

func (e *env) fsinfo(fh nfs3.FH) nfs3.FsinfoRes {
	e.Helper()
	res, err := e.client.Fsinfo(e.Context(), fh)
	e.answered("FSINFO", err)
	return res
}

func (e *env) pathconf(fh nfs3.FH) nfs3.PathconfRes {
	e.Helper()
	res, err := e.client.Pathconf(e.Context(), fh)
	e.answered("PATHCONF", err)
	return res
}

func (e *env) commit(fh nfs3.FH, offset uint64, count uint32) nfs3.CommitRes {
	e.Helper()
	res, err := e.client.Commit(e.Context(), fh, offset, count)
	e.answered("COMMIT", err)
	return res
}
