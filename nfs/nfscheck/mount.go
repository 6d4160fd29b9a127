package nfscheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/nfs/mountoption"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/rpc"
)

// Mount is a mount to test with the NFS calls of mount.nfs and the kernel. Nothing is
// mounted, and no rights are needed but for volumes with privilegedPorts.
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

// Steps returns the steps of the mount, for doctor.Steps. closeAll removes what a failed step has left, and
// closes their connections.
func (m Mount) Steps() (steps []doctor.Check, closeAll func()) {
	s := &session{mount: m}
	steps = []doctor.Check{
		doctor.One("options", func(context.Context) doctor.Result { return judgeOptions(m.Options) }),
		doctor.One("address", s.resolve),
		doctor.One("connect", s.connect),
	}
	if m.Version4() {
		four := newSession4(s)
		return append(steps, four.steps()...), four.close
	}
	three := &session3{session: s}
	return append(steps, three.steps()...), three.close
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

// minors returns the minor versions that mount.nfs asks for, one after the other.
func (m Mount) minors() []uint32 {
	for _, option := range m.Options {
		switch mountoption.Version(option) {
		case "4.1":
			return []uint32{1}
		case "4.2":
			return []uint32{2}
		}
	}
	return []uint32{2, 1}
}

// judgeOptions finds options with which mounts of podnas fail.
func judgeOptions(options []string) doctor.Result {
	version4 := Mount{Options: options}.Version4()
	for _, option := range options {
		switch key, value, _ := strings.Cut(option, "="); {
		case !slices.Contains([]string{"", "3", "4", "4.1", "4.2"}, mountoption.Version(option)), key == "minorversion":
			return doctor.Fail("use nfsvers=3, nfsvers=4.1 or nfsvers=4.2", "mount option %s: podnas serves NFS versions 3, 4.1 and 4.2", option)
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
		return doctor.Good("no conflicting option; recommended: nfsvers=4.2,proto=tcp,port=N")
	}
	if len(options) > 0 && !slices.Contains(options, "nolock") {
		return doctor.Warn("mount with nolock", "without the mount option nolock, mount.nfs needs rpc.statd on the node, and every lock of a program fails")
	}
	return doctor.Good("no conflicting option; recommended: nfsvers=3,proto=tcp,port=N,mountport=N,mountproto=tcp,mountvers=3,nolock,timeo=100,retrans=2")
}

// session is the state of the steps, which run one after the other, in both versions.
type session struct {
	mount Mount
	nfs   *rpc.Client
	attr  nfs3.PostOpAttr // of the root
	name  []byte          // of the test file, while it exists
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

// null calls NULL, which does nothing: an answer shows that the server reads calls.
func (s *session) null(ctx context.Context, client *rpc.Client, p program) doctor.Result {
	_, err := client.Call(ctx, p.number, p.version, 0, nil)
	var refused *rpc.RPCError
	switch {
	case errors.As(err, &refused) && refused.Accept == rpc.ProgMismatch && p.version == nfs4.Version:
		return doctor.Fail("use nfsvers=3. podnas serves versions 4.1 and 4.2 with the native engine, and not with --nfs4=false: podnas doctor in podnas's pod says which engine it has", "no %s version %d: %v", p.name, p.version, err)
	case errors.As(err, &refused) && refused.Accept == rpc.ProgMismatch:
		return doctor.Fail("this is not podnas, or another version of it", "no %s version %d: %v", p.name, p.version, err)
	case errors.As(err, &refused):
		return doctor.Fail("another program listens on this port: use those of the PersistentVolume's mountOptions (port=N, mountport=N)", "no %s: %v", p.name, err)
	case err != nil:
		return doctor.Fail("another program listens on this port, or podnas hangs: run podnas doctor in its pod", "%s does not answer: %v", p.name, reason(err))
	}
	return doctor.Good("%s version %d answers", p.name, p.version)
}

// credential is that of the user that writes.
func (s *session) credential() rpc.Auth {
	cred := rpc.SysCred{MachineName: []byte(s.mount.Machine), UID: s.mount.UID, GID: s.mount.GID}
	cred.SetGroups(s.mount.Groups...)
	return cred.Auth()
}
