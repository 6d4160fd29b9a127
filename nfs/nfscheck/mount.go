package nfscheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/mountoption"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// Mount is a mount to test with the NFS calls of mount.nfs and the kernel. Nothing is
// mounted, and no rights are needed.
type Mount struct {
	Host, Path      string
	Port, MountPort uint16   // of NFS and MOUNT
	Options         []string // mount options, as in a PersistentVolume
	UID, GID        uint32   // the user that writes
	Groups          []uint32
	Machine         string // this machine's name, sent to the server
}

// NewMount returns a Mount. The options port and mountport override the ports.
func NewMount(host, path string, port, mountPort uint16, options []string) (Mount, error) {
	m := Mount{Host: host, Path: path, Port: port, MountPort: mountPort, Options: options}
	var given uint16 // by mountport
	for _, option := range options {
		key, value, _ := strings.Cut(option, "=")
		if key != "port" && key != "mountport" {
			continue
		}
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil || n == 0 {
			return m, fmt.Errorf("mount option %s: %q is not a port", option, value)
		}
		if key == "mountport" {
			given = uint16(n)
		} else {
			m.Port, m.MountPort = uint16(n), uint16(n)
		}
	}
	if given != 0 {
		m.MountPort = given
	}
	return m, nil
}

// Steps returns the steps of the mount, for doctor.Steps. closeAll closes their
// connections.
func (m Mount) Steps() (steps []doctor.Check, closeAll func()) {
	if m.Version4() {
		return m.steps4()
	}
	s := &session{mount: m}
	return []doctor.Check{
		doctor.One("options", func(context.Context) doctor.Result { return judgeOptions(m.Options) }),
		doctor.One("address", s.resolve),
		doctor.One("connect", s.connect),
		doctor.One("NFS", func(ctx context.Context) doctor.Result { return s.null(ctx, s.nfs, programs()[0]) }),
		doctor.One("MOUNT", s.connectMount),
		doctor.One("mount", s.mnt),
		doctor.One("FSINFO", s.fsinfo),
		doctor.One("locks", s.locks),
		doctor.One("space", s.fsstat),
		doctor.One("create", s.create),
		doctor.One("write", s.write),
		doctor.One("read", s.read),
		doctor.One("remove", s.remove),
	}, s.close
}

// Version4 reports whether the mount is one of version 4: without a version it is one like those
// of new PersistentVolumes, unless an option is for version 3 alone.
func (m Mount) Version4() bool {
	for _, option := range m.Options {
		if v := mountoption.Version(option); v != "" {
			return mountoption.Is4(v)
		}
	}
	return !slices.ContainsFunc(m.Options, mountoption.OnlyVersion3)
}

// judgeOptions finds options with which mounts of podnas fail.
func judgeOptions(options []string) doctor.Result {
	version4 := Mount{Options: options}.Version4()
	for _, option := range options {
		switch key, value, _ := strings.Cut(option, "="); {
		case !slices.Contains([]string{"", "3", "4", "4.1"}, mountoption.Version(option)), key == "minorversion":
			return doctor.Fail("use nfsvers=3 or nfsvers=4.1", "mount option %s: podnas serves NFS versions 3 and 4.1", option)
		case (key == "proto" || key == "mountproto") && strings.HasPrefix(value, "udp"), key == "udp":
			return doctor.Fail("use proto=tcp,mountproto=tcp", "mount option %s: podnas serves TCP only", option)
		case key == "lock" && !version4:
			return doctor.Warn("mount with nolock", "mount option lock: without rpc.statd on the node the mount fails; with it every lock fails, because podnas does not serve NFS's lock protocol")
		case key == "noresvport":
			return doctor.Warn("mount without noresvport", "mount option noresvport: volumes with privilegedPorts, the default in a cluster, refuse such mounts")
		case key == "soft" || key == "softerr":
			return doctor.Warn("mount with hard, which is the default", "mount option %s: while podnas's pod is replaced, programs get I/O errors and writes are lost", key)
		}
	}
	if version4 {
		return doctor.Good("no conflicting option; recommended: nfsvers=4.1,proto=tcp,port=N")
	}
	if len(options) > 0 && !slices.Contains(options, "nolock") {
		return doctor.Warn("mount with nolock", "without the mount option nolock, mount.nfs needs rpc.statd on the node, and every lock of a program fails")
	}
	return doctor.Good("no conflicting option; recommended: nfsvers=3,proto=tcp,port=N,mountport=N,mountproto=tcp,mountvers=3,nolock")
}

// session is the state of the steps, which run one after the other.
type session struct {
	mount  Mount
	nfs    *rpc.Client
	mountd *rpc.Client
	root   nfs3.FH
	attr   nfs3.PostOpAttr // of the root
	name   []byte          // of the created file
	file   nfs3.FH
}

func (s *session) close() {
	for _, c := range []*rpc.Client{s.nfs, s.mountd} {
		if c != nil {
			_ = c.Close() // it never fails
		}
	}
}

func (s *session) address(port uint16) string {
	return net.JoinHostPort(s.mount.Host, strconv.Itoa(int(port)))
}

func (s *session) resolve(ctx context.Context) doctor.Result {
	host := s.mount.Host
	if _, err := netip.ParseAddr(host); err == nil {
		return doctor.Good("%s is an IP address", host)
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return doctor.Fail(connectFix(err), "%v", err)
	}
	if strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".cluster.local") || !strings.Contains(host, ".") && host != "localhost" {
		return doctor.Warn("use the Service's ClusterIP, "+addresses[0]+"; podnas's PersistentVolumes do",
			"%s resolves here, but kubelet mounts with the node's own DNS, which can't resolve Services", host)
	}
	return doctor.Good("%s is %s", host, strings.Join(addresses, ", "))
}

// dial connects from a privileged port, as the kernel does, if this user may.
func dial(ctx context.Context, address string) (*rpc.Client, error) {
	conn, err := rpc.DialReserved(ctx, net.Dialer{}, address)
	if err != nil {
		return nil, err
	}
	return rpc.NewClient(conn), nil
}

func (s *session) connect(ctx context.Context) doctor.Result {
	client, err := dial(ctx, s.address(s.mount.Port))
	if err != nil {
		return doctor.Fail(connectFix(err), "no TCP connection to %s: %v", s.address(s.mount.Port), reason(err))
	}
	s.nfs = client
	return doctor.Good("TCP to %s", s.address(s.mount.Port))
}

func (s *session) connectMount(ctx context.Context) doctor.Result {
	client, err := dial(ctx, s.address(s.mount.MountPort))
	if err != nil {
		return doctor.Fail("set MOUNT's port with --options=mountport=N; podnas serves it on the port of NFS. "+connectFix(err),
			"no TCP connection to %s: %v", s.address(s.mount.MountPort), reason(err))
	}
	s.mountd = client
	return s.null(ctx, client, programs()[1])
}

// null calls NULL, which does nothing: an answer shows that the server reads calls.
func (s *session) null(ctx context.Context, client *rpc.Client, p program) doctor.Result {
	_, err := client.Call(ctx, p.number, p.version, 0, nil)
	var refused *rpc.RPCError
	switch {
	case errors.As(err, &refused) && refused.Accept == rpc.ProgMismatch && p.version == nfs4.Version:
		return doctor.Fail("use nfsvers=3. podnas serves version 4.1 with the native engine, and not with --nfs4=false: podnas doctor in podnas's pod says which engine it has", "no %s version %d: %v", p.name, p.version, err)
	case errors.As(err, &refused) && refused.Accept == rpc.ProgMismatch:
		return doctor.Fail("this is not podnas, or another version of it", "no %s version %d: %v", p.name, p.version, err)
	case errors.As(err, &refused):
		return doctor.Fail("another program listens on this port: set the ports with --options=port=N,mountport=N, from the PersistentVolume's mountOptions", "no %s: %v", p.name, err)
	case err != nil:
		return doctor.Fail("another program listens on this port, or podnas hangs: run podnas doctor in its pod", "%s does not answer: %v", p.name, reason(err))
	}
	return doctor.Good("%s version %d answers", p.name, p.version)
}

func (s *session) mnt(ctx context.Context) doctor.Result {
	var res mount3.MntRes
	if r, ok := s.call(ctx, s.mountd, mount3.Program, mount3.Version, mount3.ProcMnt, &mount3.PathArgs{Path: []byte(s.mount.Path)}, &res); !ok {
		return r
	}
	switch res.Status {
	case mount3.OK:
	case mount3.ErrNoEnt:
		return doctor.Fail("list the volumes with podnas volume list, in podnas's pod. The path of a PersistentVolume is its .spec.nfs.path; if that is missing on the disk, podnas doctor there says more",
			"the server has no volume at %s", s.mount.Path)
	case mount3.ErrAcces, mount3.ErrPerm:
		return doctor.Fail("the volume's allowedClients (podnas volume show NAME) must include the address that this machine connects from: a node's, not a pod's. Volumes with privilegedPorts, the default in a cluster, accept only calls from ports below 1024: run this as root",
			"the server does not let this machine mount %s", s.mount.Path)
	default:
		return doctor.Fail("podnas's log says more", "the server answers %s to the mount of %s", res.Status, s.mount.Path)
	}
	if !slices.Contains(res.Flavors, rpc.AuthSys) {
		return doctor.Fail("this is not podnas: configure the server to allow sec=sys", "the server does not accept AUTH_SYS, which mounts use")
	}
	s.root = bytes.Clone(res.Handle)
	return doctor.Good("the server has %s and lets this machine mount it", s.mount.Path)
}

// lockManager is NLM version 4 (the Open Group's XNFS, chapter 10).
const lockManager, lockVersion = 100021, 4

func (s *session) locks(ctx context.Context) doctor.Result {
	if _, err := s.nfs.Call(ctx, lockManager, lockVersion, 0, nil); err == nil {
		return doctor.Good("the server serves NLM, NFS's lock protocol; with nolock it is not used")
	}
	return doctor.Good("with nolock, locks (flock, fcntl) work between programs of one node, but not between nodes, because the server has no NLM. Files that are locked from two nodes at once, such as a database, need nfsvers=4.1")
}

// credential is that of the user that writes.
func (s *session) credential() rpc.Auth {
	cred := rpc.SysCred{MachineName: []byte(s.mount.Machine), UID: s.mount.UID, GID: s.mount.GID}
	cred.SetGroups(s.mount.Groups...)
	return cred.Auth()
}

// result is the result of a call.
type result interface{ Decode(*xdr.Decoder) }

// call makes a call and decodes its result into res. If that fails, it returns false
// and a Result that says so.
func (s *session) call(ctx context.Context, client *rpc.Client, prog, vers, proc uint32, args rpc.Args, res result) (doctor.Result, bool) {
	data, err := client.Do(ctx, rpc.CallHeader{RPCVersion: rpc.Version, Prog: prog, Vers: vers, Proc: proc, Cred: s.credential()}, args)
	if err == nil {
		d := xdr.NewDecoder(data)
		res.Decode(&d)
		err = d.Err() // surplus bytes are no error: go-nfs sends them, and the kernel ignores them
	}
	if err != nil {
		return doctor.Fail("podnas's log says more", "the call got no valid answer: %v", reason(err)), false
	}
	return doctor.Result{}, true
}
