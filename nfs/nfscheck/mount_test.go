package nfscheck_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/nfs/nfscheck"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/oncrpc"
	"github.com/podnas/podnas/server/space"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// serve runs an engine with the volumes of these tests, and returns its port.
func serve(t *testing.T, engine string) (port uint16, dirs map[string]string) {
	t.Helper()
	choice, err := server.SelectEngine(engine, server.HandlesAuto, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	table := &exports.Table{}
	dirs = map[string]string{}
	for i, v := range []struct {
		name    string
		options exports.Options
	}{
		{"good", exports.Options{}},
		{"read-only", exports.Options{ReadOnly: true}},
		{"others", exports.Options{Clients: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}},
		{"privileged", exports.Options{PrivilegedPorts: true}},
		{"squash", exports.Options{AllSquash: true, AnonUID: 65534, AnonGID: 65534}},
		{"private", exports.Options{}},
	} {
		if choice.Check(&v.options) != nil {
			continue
		}
		dir := filepath.Join(t.TempDir(), v.name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if v.name != "private" {
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		dirs[v.name] = dir
		if err := table.Export(exports.Exported{ID: uint64(i + 1), Path: "/" + v.name, Dir: dir, Options: v.options}); err != nil {
			t.Fatal(err)
		}
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "file"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := table.Export(exports.Exported{ID: 9, Path: "/full", Dir: full, Account: space.NewAccount(quota.Limit{Bytes: 1 << 20})}); err != nil {
		t.Fatal(err)
	}
	clients := t.TempDir() // with state
	dirs["clients"] = clients
	s, err := server.New(server.Config{Engine: choice, Exports: table, HandleKey: make([]byte, 32), NFS4: clients, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return uint16(nfstest.Serve(t, s).Port), dirs
}

func portOf(l net.Listener) uint16 { return uint16(l.Addr().(*net.TCPAddr).Port) }

// closedPort is one where nothing listens.
func closedPort(t *testing.T) uint16 {
	t.Helper()
	l := nfstest.Listen(t)
	l.Close()
	return portOf(l)
}

// try makes the steps of a mount, and returns the last.
func try(t *testing.T, m nfscheck.Mount) (last doctor.Result, all []doctor.Result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	steps, closeAll := m.Steps()
	defer closeAll()
	all = doctor.Steps(ctx, steps)
	for _, r := range all {
		if r.Status != doctor.OK && r.Fix == "" {
			t.Errorf("%s: it is not said what to do about %q", r.Check, r.Says)
		}
	}
	return all[len(all)-1], all
}

func mountOf(port uint16, path string) nfscheck.Mount {
	return nfscheck.Mount{Host: "127.0.0.1", Path: path, Port: port, MountPort: port, Options: []string{"nolock"}, Machine: "test"}
}

// version4 is the mount with version 4.1.
func version4(m nfscheck.Mount) nfscheck.Mount {
	m.Options = []string{"nfsvers=4.1"}
	return m
}

func names(results []doctor.Result) []string {
	var names []string
	for _, r := range results {
		names = append(names, r.Check)
	}
	return names
}

var allSteps = []string{"options", "address", "connect", "NFS", "MOUNT", "mount", "FSINFO", "locks", "space", "create", "write", "read", "remove"}

// A mount of a good volume goes through all the steps and leaves nothing behind; a
// broken one stops where it is broken, and leaves nothing either.
func TestMount(t *testing.T) {
	conn, err := rpc.DialReserved(t.Context(), net.Dialer{}, "127.0.0.1:"+strconv.Itoa(int(portOf(nfstest.Listen(t)))))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	anyPort := conn.LocalAddr().(*net.TCPAddr).Port >= 1024 // this user may have no other
	for _, engine := range []string{server.EngineGoNFS, server.EngineNative} {
		t.Run(engine, func(t *testing.T) {
			if engine == server.EngineNative && os.Geteuid() != 0 {
				t.Skip("the native engine needs root")
			}
			port, dirs := serve(t, engine)
			for _, tt := range []struct {
				path   string
				change func(*nfscheck.Mount)
				native bool // alone: go-nfs does not know who calls
				step   string
				status doctor.Status
				says   string
				fix    string
			}{
				{"/good", nil, false, "remove", doctor.OK, "removed", ""},
				{"/nothing", nil, false, "mount", doctor.Failed, "no volume at /nothing", "podnas volume list"},
				{"/others", nil, false, "mount", doctor.Failed, "does not let this machine", "allowedClients"},
				{"/privileged", nil, false, "remove", doctor.OK, "removed", ""},
				{"/read-only", nil, false, "create", doctor.Failed, "nothing can be written", "read-only"},
				{"/full", nil, true, "create", doctor.Failed, "is full", "raise the claim's request"},
				{
					"/private", func(m *nfscheck.Mount) { m.UID, m.GID, m.Groups = 1000, 1000, []uint32{2000} }, true, "create", doctor.Failed,
					"belongs to 0:0 and has mode 0700, the caller is uid 1000, gid 1000, groups [2000]", "securityContext.runAsUser",
				},
				{"/squash", func(m *nfscheck.Mount) { m.UID, m.GID = 1000, 1000 }, true, "create", doctor.OK, "it belongs to 65534:65534", ""},
				{"/good", func(m *nfscheck.Mount) { m.MountPort = closedPort(t) }, false, "MOUNT", doctor.Failed, "refused", "mountport=N"},
			} {
				if tt.native && engine != server.EngineNative {
					continue
				}
				if tt.path == "/privileged" && anyPort {
					tt.step, tt.status, tt.says, tt.fix = "mount", doctor.Failed, "does not let this machine", "run this as root"
				}
				t.Run(tt.path+" "+tt.step, func(t *testing.T) {
					m := mountOf(port, tt.path)
					if tt.change != nil {
						tt.change(&m)
					}
					last, all := try(t, m)
					at := slices.Index(allSteps, tt.step)
					if tt.status == doctor.OK {
						if !slices.Equal(names(all), allSteps) || doctor.Count(all, doctor.OK) != len(all) {
							t.Fatalf("not all steps worked: %+v", all)
						}
						last = all[at]
					}
					if last.Check != tt.step || last.Status != tt.status || !strings.Contains(last.Says, tt.says) || !strings.Contains(last.Fix, tt.fix) {
						t.Errorf("%+v, want %s at %s with %q, to do %q", last, tt.status, tt.step, tt.says, tt.fix)
					}
					if !slices.Equal(names(all), allSteps[:len(all)]) {
						t.Errorf("the steps were %q", names(all))
					}
				})
			}
			for name, dir := range dirs {
				if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
					t.Errorf("in %s is left %v, %v", name, left, err)
				}
			}
			r := nfscheck.Ports(t.Context(), rpc.Dial, net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
			if r.Status != doctor.OK {
				t.Errorf("its ports: %+v", r)
			}
		})
	}
}

var steps4 = []string{"options", "address", "connect", "NFS", "session", "mount", "space", "create", "locks", "write", "read", "remove"}

// TestMount with versions 4.1 and 4.2. It leaves no client behind.
func TestMount4(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the native engine needs root")
	}
	port, dirs := serve(t, server.EngineNative)
	for _, tt := range []struct {
		path   string
		change func(*nfscheck.Mount)
		step   string
		status doctor.Status
		says   string
		fix    string
	}{
		{"/good", nil, "mount", doctor.OK, "belongs to 0:0 and has mode 0777", ""},
		{"/good", nil, "locks", doctor.OK, "between nodes", ""},
		{"/good", nil, "session", doctor.OK, "of version 4.1", ""},
		{"/good", func(m *nfscheck.Mount) { m.Options = []string{"nfsvers=4.2"} }, "session", doctor.OK, "of version 4.2", ""},
		{"/good", func(m *nfscheck.Mount) { m.Options = []string{"v4"} }, "session", doctor.OK, "of version 4.2", ""},
		{"/good", func(m *nfscheck.Mount) { m.Options = nil }, "session", doctor.OK, "of version 4.2", ""},
		{"/privileged", nil, "remove", doctor.OK, "removed", ""},
		{"/nothing", nil, "mount", doctor.Failed, "no volume at /nothing", "podnas volume list"},
		{"/others", nil, "mount", doctor.Failed, "does not let this machine", "allowedClients"},
		{"/read-only", nil, "create", doctor.Failed, "nothing can be written", "read-only"},
		{"/full", nil, "create", doctor.Failed, "is full", "raise the claim's request"},
		{
			"/private", func(m *nfscheck.Mount) { m.UID, m.GID, m.Groups = 1000, 1000, []uint32{2000} }, "create", doctor.Failed,
			"belongs to 0:0 and has mode 0700, the caller is uid 1000, gid 1000, groups [2000]", "securityContext.runAsUser",
		},
		{"/squash", func(m *nfscheck.Mount) { m.UID, m.GID = 1000, 1000 }, "create", doctor.OK, "it belongs to 65534:65534", ""},
	} {
		t.Run(tt.path+" "+tt.step, func(t *testing.T) {
			m := version4(mountOf(port, tt.path))
			if tt.change != nil {
				tt.change(&m)
			}
			last, all := try(t, m)
			if tt.status == doctor.OK {
				if !slices.Equal(names(all), steps4) || doctor.Count(all, doctor.OK) != len(all) {
					t.Fatalf("not all steps worked: %+v", all)
				}
				last = all[slices.Index(steps4, tt.step)]
			}
			if last.Check != tt.step || last.Status != tt.status || !strings.Contains(last.Says, tt.says) || !strings.Contains(last.Fix, tt.fix) {
				t.Errorf("%+v, want %s at %s with %q, to do %q", last, tt.status, tt.step, tt.says, tt.fix)
			}
		})
	}
	for name, dir := range dirs {
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("in %s is left %v, %v", name, left, err)
		}
	}
}

// A server without 4.2, as older podnas are: a mount that needs it fails, and one that need not gets 4.1.
func TestMountWithoutMinorVersion(t *testing.T) {
	serving := func(highest uint32) uint16 { // it has no session for anybody
		null := oncrpc.Procedure{Name: "NULL", AnyAuth: true, Handle: func(*oncrpc.Call) rpc.AcceptStat { return rpc.Success }}
		compound := oncrpc.Procedure{Name: "COMPOUND", AnyAuth: true, Handle: func(c *oncrpc.Call) rpc.AcceptStat {
			var args nfs4.CompoundArgs
			args.Decode(&c.Args)
			status := nfs4.ErrResource
			if args.MinorVersion > highest {
				status = nfs4.ErrMinorVersMismatch
			}
			c.Reply = (&nfs4.CompoundRes{Status: status}).Append(c.Reply)
			return rpc.Success
		}}
		s, err := oncrpc.NewServer(oncrpc.ServerConfig{
			Programs: []oncrpc.Program{{Number: nfs4.Program, Version: nfs4.Version, Procedures: []oncrpc.Procedure{null, compound}}},
			Log:      slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		return uint16(nfstest.Serve(t, s).Port)
	}
	four1, four0 := serving(1), serving(0)
	for _, tt := range []struct {
		option    string
		port      uint16
		says, fix string
	}{
		{"nfsvers=4.2", four1, "does not serve version 4.2", "use nfsvers=4.1"},
		{"nfsvers=4.1", four1, "answers NFS4ERR_RESOURCE", "log"},
		{"nfsvers=4", four1, "answers NFS4ERR_RESOURCE", "log"},
		{"hard", four1, "answers NFS4ERR_RESOURCE", "log"},
		{"nfsvers=4.2", four0, "does not serve version 4.2", "upgrade"},
		{"nfsvers=4.1", four0, "does not serve version 4.1", "use nfsvers=3"},
		{"nfsvers=4", four0, "does not serve version 4.1", "use nfsvers=3"},
	} {
		m := mountOf(tt.port, "/good")
		m.Options = []string{tt.option}
		if last, _ := try(t, m); last.Check != "session" || last.Status != doctor.Failed || !strings.Contains(last.Says, tt.says) || !strings.Contains(last.Fix, tt.fix) {
			t.Errorf("%s: %+v, want it to fail at session with %q, to do %q", tt.option, last, tt.says, tt.fix)
		}
	}
}

// Services that are broken before a volume is asked for.
func TestBrokenService(t *testing.T) {
	silent := nfstest.Listen(t) // accepts, in the kernel, and does not answer
	web := nfstest.Listen(t)
	h := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Second}
	go func() { _ = h.Serve(web) }()
	t.Cleanup(func() { h.Close() })
	null := oncrpc.Procedure{Name: "NULL", AnyAuth: true, Handle: func(*oncrpc.Call) rpc.AcceptStat { return rpc.Success }}
	program := func(version uint32) uint16 { // NFS, and no MOUNT
		s, err := oncrpc.NewServer(oncrpc.ServerConfig{
			Programs: []oncrpc.Program{{Number: nfs3.Program, Version: version, Procedures: []oncrpc.Procedure{null}}},
			Log:      slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		return uint16(nfstest.Serve(t, s).Port)
	}
	for _, tt := range []struct {
		name      string
		m         nfscheck.Mount
		step      string
		says, fix string
	}{
		{"nothing listens", mountOf(closedPort(t), "/good"), "connect", "connection refused", "kubectl -n podnas get pods,endpointslices"},
		{"it does not answer", mountOf(portOf(silent), "/good"), "NFS", "no answer in time", "podnas hangs"},
		{"another program", mountOf(portOf(web), "/good"), "NFS", "does not answer", "another program"},
		{"another version", mountOf(program(4), "/good"), "NFS", "no NFS version 3", "not podnas"},
		{"no MOUNT", mountOf(program(3), "/good"), "MOUNT", "no such program", "another program"},
		{"no such name", nfscheck.Mount{Host: "nothing.invalid", Path: "/good", Port: 1, MountPort: 1}, "address", "nothing.invalid", "use the IP address"},
		{"version 4.3 asked for", nfscheck.Mount{Options: []string{"vers=4.3"}}, "options", "vers=4.3", "nfsvers=4.1"},
		{"version 4.0 asked for", nfscheck.Mount{Options: []string{"v4.0"}}, "options", "v4.0", "nfsvers=4.1"},
		{"version 4 is not served", version4(mountOf(program(3), "/good")), "NFS", "no NFS version 4", "use nfsvers=3"},
		{"version 4 hangs", version4(mountOf(portOf(silent), "/good")), "NFS", "no answer in time", "podnas hangs"},
		{"version 4 without COMPOUND", version4(mountOf(program(4), "/good")), "session", "no valid answer", "podnas's log"},
		{"UDP asked for", nfscheck.Mount{Options: []string{"proto=udp"}}, "options", "TCP only", "proto=tcp"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			steps, closeAll := tt.m.Steps()
			defer closeAll()
			all := doctor.Steps(ctx, steps)
			last := all[len(all)-1]
			if last.Check != tt.step || last.Status != doctor.Failed || !strings.Contains(last.Says, tt.says) || !strings.Contains(last.Fix, tt.fix) {
				t.Errorf("%+v, want %s to fail with %q, to do %q", last, tt.step, tt.says, tt.fix)
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if r := nfscheck.Ports(ctx, rpc.Dial, silent.Addr().String()); r.Status != doctor.Failed || !strings.Contains(r.Says, "NFS does not answer") {
		t.Errorf("ports of a server that hangs: %+v", r)
	}
	if r := nfscheck.Ports(t.Context(), rpc.Dial, "127.0.0.1:"+strconv.Itoa(int(closedPort(t)))); r.Status != doctor.Failed || !strings.Contains(r.Says, "can't connect") {
		t.Errorf("ports that are closed: %+v", r)
	}
	if r := nfscheck.Ports(t.Context(), rpc.Dial, "127.0.0.1:"+strconv.Itoa(int(program(3)))); r.Status != doctor.Failed || !strings.Contains(r.Says, "MOUNT does not answer") {
		t.Errorf("no MOUNT: %+v", r)
	}
}

// Options that a mount works with, and its programs suffer from.
func TestOptionWarnings(t *testing.T) {
	for options, says := range map[string]string{
		"nolock,soft":   "writes are lost",
		"lock":          "lock protocol",
		"nfsvers=3":     "without the mount option nolock",
		"nolock,rw":     "",
		"nolock,hard":   "",
		"nolock,vers=3": "",
		"nfsvers=4.1":   "",
		"v4,soft":       "writes are lost",
	} {
		m := nfscheck.Mount{Host: "nothing.invalid", Options: strings.Split(options, ",")}
		steps, closeAll := m.Steps()
		r := steps[0].Run(t.Context())[0]
		closeAll()
		if (r.Status == doctor.OK) != (says == "") || !strings.Contains(r.Says, says) {
			t.Errorf("%s: %+v, want %q", options, r, says)
		}
	}
	for _, tt := range []struct {
		options         []string
		port, mountPort uint16
		err             bool
	}{
		{nil, 2049, 2049, false},
		{[]string{"port=1"}, 1, 1, false},
		{[]string{"mountport=2", "port=1"}, 1, 2, false},
		{[]string{"mountport=2"}, 2049, 2, false},
		{[]string{"port=x"}, 0, 0, true},
		{[]string{"mountport=0"}, 0, 0, true},
	} {
		m, err := nfscheck.NewMount("h", "/p", 2049, 2049, tt.options)
		if (err != nil) != tt.err || err == nil && (m.Port != tt.port || m.MountPort != tt.mountPort) {
			t.Errorf("%q: %+v, %v", tt.options, m, err)
		}
	}
}
