// Package mount3 is version 3 of the MOUNT protocol (RFC 1813 appendix I), from
// which a client gets the file handle of an export's root.
//
// As in package nfs3, Decode aliases the record.
package mount3

import (
	"strconv"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// Program and version of section 5.2.
const (
	Program = 100005
	Version = 3
)

// Procedures of section 5.2.
const (
	ProcNull    = 0
	ProcMnt     = 1
	ProcDump    = 2
	ProcUmnt    = 3
	ProcUmntAll = 4
	ProcExport  = 5
)

// Sizes of section 5.1.4.
const (
	MaxPath = 1024 // MNTPATHLEN
	MaxName = 255  // MNTNAMLEN
	FHSize  = 64   // FHSIZE3
)

// maxFlavors bounds the list of authentication flavors, for which the RFC has no
// limit. Fewer flavors exist.
const maxFlavors = 64

// Status is mountstat3.
type Status uint32

// Values of Status (section 5.1.5).
const (
	OK             Status = 0
	ErrPerm        Status = 1
	ErrNoEnt       Status = 2
	ErrIO          Status = 5
	ErrAcces       Status = 13
	ErrNotDir      Status = 20
	ErrInval       Status = 22
	ErrNameTooLong Status = 63
	ErrNotSupp     Status = 10004
	ErrServerFault Status = 10006
)

// String returns the RFC's name of the status.
func (s Status) String() string {
	switch s {
	case OK:
		return "MNT3_OK"
	case ErrPerm:
		return "MNT3ERR_PERM"
	case ErrNoEnt:
		return "MNT3ERR_NOENT"
	case ErrIO:
		return "MNT3ERR_IO"
	case ErrAcces:
		return "MNT3ERR_ACCES"
	case ErrNotDir:
		return "MNT3ERR_NOTDIR"
	case ErrInval:
		return "MNT3ERR_INVAL"
	case ErrNameTooLong:
		return "MNT3ERR_NAMETOOLONG"
	case ErrNotSupp:
		return "MNT3ERR_NOTSUPP"
	case ErrServerFault:
		return "MNT3ERR_SERVERFAULT"
	default:
		return "mountstat3(" + strconv.FormatUint(uint64(s), 10) + ")"
	}
}

// PathArgs are the arguments of MNT and UMNT: the export's path (dirpath).
type PathArgs struct {
	Path []byte
}

// Append appends the arguments.
func (a *PathArgs) Append(b []byte) []byte {
	return xdr.AppendOpaque(b, a.Path)
}

// Decode consumes the arguments.
func (a *PathArgs) Decode(d *xdr.Decoder) {
	a.Path = d.Opaque(MaxPath)
}

// MntRes is mountres3.
type MntRes struct {
	Status  Status
	Handle  []byte           // if OK; the nfs_fh3 of the export's root
	Flavors []rpc.AuthFlavor // if OK
}

// Append appends the result.
func (r *MntRes) Append(b []byte) []byte {
	b = xdr.AppendUint32(b, uint32(r.Status))
	if r.Status != OK {
		return b
	}
	b = xdr.AppendOpaque(b, r.Handle)
	b = xdr.AppendUint32(b, uint32(len(r.Flavors)))
	for _, f := range r.Flavors {
		b = xdr.AppendUint32(b, uint32(f))
	}
	return b
}

// Decode consumes the result.
func (r *MntRes) Decode(d *xdr.Decoder) {
	*r = MntRes{Status: Status(d.Uint32())}
	if r.Status != OK {
		return
	}
	r.Handle = d.Opaque(FHSize)
	for range d.Count(maxFlavors, 4) {
		r.Flavors = append(r.Flavors, rpc.AuthFlavor(d.Uint32()))
	}
}

// Mount is an element of mountlist: a client and a path it has mounted.
type Mount struct {
	Hostname  []byte
	Directory []byte
}

// DumpRes is the result of DUMP.
type DumpRes struct {
	Mounts []Mount
}

// Append appends the result.
func (r *DumpRes) Append(b []byte) []byte {
	for _, m := range r.Mounts {
		b = xdr.AppendBool(b, true)
		b = xdr.AppendOpaque(b, m.Hostname)
		b = xdr.AppendOpaque(b, m.Directory)
	}
	return xdr.AppendBool(b, false)
}

// Decode consumes the result. The record's length bounds the list.
func (r *DumpRes) Decode(d *xdr.Decoder) {
	*r = DumpRes{}
	for d.Bool() {
		r.Mounts = append(r.Mounts, Mount{Hostname: d.Opaque(MaxName), Directory: d.Opaque(MaxPath)})
	}
}

// Export is an element of exports: a path, and who may mount it. No groups:
// anyone.
type Export struct {
	Directory []byte
	Groups    [][]byte
}

// ExportRes is the result of EXPORT.
type ExportRes struct {
	Exports []Export
}

// Append appends the result.
func (r *ExportRes) Append(b []byte) []byte {
	for _, e := range r.Exports {
		b = xdr.AppendBool(b, true)
		b = xdr.AppendOpaque(b, e.Directory)
		for _, g := range e.Groups {
			b = xdr.AppendBool(b, true)
			b = xdr.AppendOpaque(b, g)
		}
		b = xdr.AppendBool(b, false)
	}
	return xdr.AppendBool(b, false)
}

// Decode consumes the result. The record's length bounds the lists.
func (r *ExportRes) Decode(d *xdr.Decoder) {
	*r = ExportRes{}
	for d.Bool() {
		e := Export{Directory: d.Opaque(MaxPath)}
		for d.Bool() {
			e.Groups = append(e.Groups, d.Opaque(MaxName))
		}
		r.Exports = append(r.Exports, e)
	}
}
