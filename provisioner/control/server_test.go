package control

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/latest"
	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/controller"
	"github.com/podnas/podnas/provisioner/internal/fixture"
	"github.com/podnas/podnas/quota"
)

// start serves a new disk until the test ends.
func start(t *testing.T) (*Client, *Server, string) {
	t.Helper()
	root := t.TempDir()
	client, s := startOn(t, root)
	return client, s, root
}

// startOn serves a disk until the test ends.
func startOn(t *testing.T, root string) (*Client, *Server) {
	t.Helper()
	return startWith(t, root, nil)
}

// startWith is startOn with snapshots.
func startWith(t *testing.T, root string, snapshots volume.Snapshotter) (*Client, *Server) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, err := volume.Open(volume.Config{Root: root, Exports: fixture.NoExports{}, Snapshots: snapshots, Log: log})
	mustDo(t, err)
	endpoint, err := provisioner.ParseStaticEndpoint("192.0.2.10", 2049)
	mustDo(t, err)
	s := &Server{
		Findings:    doctor.NewList(nil),
		Provisioner: &provisioner.Provisioner{Store: store, Endpoint: endpoint, Name: provisioner.DefaultName, Log: log},
		Process:     process.Info{Version: "test", Root: root, Engine: "native"},
		Log:         log,
	}
	l, err := Listen(root, nil, slog.New(slog.DiscardHandler))
	mustDo(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-served:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(2 * stopTimeout):
			t.Error("Serve has not returned")
		}
		if _, err := os.Lstat(filepath.Join(root, volume.ControlSocket)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("when Serve has returned the socket is there: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return NewClient(root), s
}

// wantCode checks that an error is an Error of a code, with a text in it.
func wantCode(t *testing.T, err error, code Code, text string) {
	t.Helper()
	var said *Error
	if !errors.As(err, &said) || said.Code != code || !strings.Contains(said.Message, text) {
		t.Errorf("%v (%T), want the code %s and %q", err, err, code, text)
	}
}

func TestLifeOfAVolume(t *testing.T) {
	c, s, root := start(t)
	ctx := t.Context()
	request := CreateRequest{
		Name: "scratch", Size: 1 << 20, Path: "team/scratch",
		Parameters:   map[string]string{"mode": "2770", "gid": "2000", "rootSquash": "true", "allowedClients": "10.0.0.0/8", "onDelete": "retain"},
		AccessModes:  []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		StorageClass: "manual", MountOptions: []string{"hard"}, ReclaimPolicy: v1.PersistentVolumeReclaimRetain,
	}
	if os.Getuid() != 0 {
		delete(request.Parameters, "gid") // only root gives files away
	}
	v, err := c.Create(ctx, request)
	mustDo(t, err)
	info, err := os.Stat(filepath.Join(root, "team/scratch"))
	mustDo(t, err)
	if info.Mode() != fs.ModeDir|fs.ModeSetgid|0o770 {
		t.Errorf("mode %v, want 2770", info.Mode())
	}
	if v.State != volume.Ready || v.Size != 1<<20 || v.StorageClass != "manual" || v.Clients != nil || !v.Options.RootSquash || v.OnDelete != volume.RetainFiles ||
		len(v.Options.Clients) != 1 || v.Options.Clients[0] != netip.MustParsePrefix("10.0.0.0/8") {
		t.Errorf("created %+v", v)
	}
	again, err := c.Create(ctx, request)
	if err != nil || again.ID != v.ID {
		t.Errorf("created again: %+v, %v, want the same volume", again, err)
	}

	manifests, err := c.Manifests(ctx, "scratch")
	mustDo(t, err)
	if len(manifests) != 1 || manifests[0].Claim != nil {
		t.Fatalf("manifests %+v, want one, without a claim", manifests)
	}
	pv := manifests[0].Volume
	if pv.Kind != "PersistentVolume" || pv.Spec.NFS == nil || pv.Spec.NFS.Path != "/team/scratch" || pv.Spec.NFS.Server != "192.0.2.10" ||
		pv.Spec.StorageClassName != "manual" || pv.Spec.AccessModes[0] != v1.ReadWriteOnce || pv.Spec.Capacity.Storage().String() != "1Mi" ||
		pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimRetain {
		t.Errorf("PersistentVolume %+v", pv)
	}

	s.VolumeClients = func() map[uint64]int { return map[uint64]int{v.ID: 3} }
	if of, err := c.Get(ctx, "scratch"); err != nil || of.Clients == nil || *of.Clients != 3 {
		t.Errorf("with three clients: %+v, %v", of, err)
	}
	if all, err := c.List(ctx, false); err != nil || len(all) != 1 || all[0].Clients == nil || *all[0].Clients != 3 {
		t.Errorf("listed with three clients: %+v, %v", all, err)
	}

	if v, err = c.Resize(ctx, "scratch", 2<<20, 0, false); err != nil || v.Size != 2<<20 {
		t.Errorf("resized: %+v, %v", v, err)
	}
	if v, err = c.Resize(ctx, "scratch", 2<<20, 512, false); err != nil || v.Inodes != 4096 || v.BytesPerInode != 512 {
		t.Errorf("given more inodes: %+v, %v", v, err)
	}
	_, err = c.Resize(ctx, "scratch", 2<<20, 8, false)
	wantCode(t, err, Invalid, "one inode for each 8 bytes")
	_, err = c.Resize(ctx, "scratch", 1<<20, 0, false)
	wantCode(t, err, Invalid, "")

	mustDo(t, os.WriteFile(filepath.Join(root, "team/scratch/file"), []byte("kept"), 0o600))
	mustDo(t, c.Delete(ctx, "scratch", false))
	if list, err := c.List(ctx, false); err != nil || list == nil || len(list) != 0 {
		t.Errorf("after Delete: %v, %v, want an empty list", list, err)
	}
	list, err := c.List(ctx, true)
	if err != nil || len(list) != 1 || list[0].State != volume.Retained || list[0].Since == nil {
		t.Errorf("all after Delete: %+v, %v, want the retained volume", list, err)
	}
	if v, err = c.Get(ctx, "scratch"); err != nil || v.State != volume.Retained {
		t.Errorf("the retained volume: %+v, %v", v, err)
	}
	wantCode(t, c.Delete(ctx, "scratch", false), NotFound, "scratch")

	if v, err = c.Adopt(ctx, CreateRequest{Name: "scratch"}); err != nil || v.State != volume.Ready || v.Path != "team/scratch" {
		t.Errorf("adopted: %+v, %v", v, err)
	}
	if data, err := os.ReadFile(filepath.Join(root, "team/scratch/file")); string(data) != "kept" {
		t.Errorf("the file reads %q, %v", data, err)
	}
}

// What a volume that is restored can't have is refused, and what it can is its own but for what is said.
func TestAdoptKept(t *testing.T) {
	for _, on := range []string{"archive", "retain"} {
		t.Run(on, func(t *testing.T) {
			c, s, root := start(t)
			ctx := t.Context()
			mustDo(t, os.MkdirAll(filepath.Join(root, "old/photos"), 0o755))
			v, err := c.Create(ctx, CreateRequest{
				Name: "team", Size: 1 << 20, Parameters: map[string]string{"onDelete": on},
				StorageClass: "manual", AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, MountOptions: []string{"nfsvers=3", "hard"},
			})
			mustDo(t, err)
			m, err := provisioner.ManifestOf(v.Volume)
			mustDo(t, err)
			m.Annotations, m.ClaimLabels = map[string]string{"pv.beta.kubernetes.io/gid": "2000"}, map[string]string{"app": "photos"}
			data, err := m.Encode()
			mustDo(t, err)
			_, err = s.store().SetManifest(ctx, "team", data)
			mustDo(t, err)
			mustDo(t, c.Delete(ctx, "team", false))

			_, err = c.Adopt(ctx, CreateRequest{Name: "team", Parameters: map[string]string{"readOnly": "true", "allowedClients": "10.0.0.0/8"}})
			wantCode(t, err, Invalid, "leave out allowedClients, readOnly")
			_, err = c.Adopt(ctx, CreateRequest{Name: "team", Path: "old/photos", Size: 2 << 20})
			wantCode(t, err, Invalid, "its directory is team, not old/photos")
			if v, err := c.Get(ctx, "team"); err != nil || v.Since == nil {
				t.Errorf("after the refusals: %+v, %v", v, err)
			}
			v, err = c.Adopt(ctx, CreateRequest{Name: "team", Path: "team", ReclaimPolicy: v1.PersistentVolumeReclaimDelete})
			mustDo(t, err)
			m.ReclaimPolicy = v1.PersistentVolumeReclaimDelete
			if got, err := provisioner.ManifestOf(v.Volume); err != nil || !reflect.DeepEqual(got, m) {
				t.Errorf("restored with another policy: %+v, %v, want %+v", got, err, m)
			}
			mustDo(t, c.Delete(ctx, "team", false))
			v, err = c.Adopt(ctx, CreateRequest{
				Name: "team", StorageClass: "other", AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}, MountOptions: []string{"nfsvers=4.1"},
			})
			mustDo(t, err)
			m.StorageClassName, m.AccessModes, m.MountOptions = "other", []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}, []string{"nfsvers=4.1"}
			if got, err := provisioner.ManifestOf(v.Volume); err != nil || !reflect.DeepEqual(got, m) {
				t.Errorf("restored with all else: %+v, %v, want %+v", got, err, m)
			}
		})
	}
}

// A volume that clients can't mount is not listed as ready, and why is said. One whose record can't be relied on is not
// deleted.
func TestUnservedVolumes(t *testing.T) {
	root := t.TempDir()
	store, err := volume.Open(volume.Config{Root: root, Exports: fixture.NoExports{}, Log: slog.New(slog.DiscardHandler)})
	mustDo(t, err)
	for _, name := range []string{"cut", "gone", "well"} {
		_, err := store.Create(t.Context(), volume.Spec{Name: name, Size: 1 << 20})
		mustDo(t, err)
	}
	mustDo(t, store.Close())
	mustDo(t, os.Truncate(filepath.Join(root, ".podnas/volumes/cut.json"), 30))
	mustDo(t, os.Remove(filepath.Join(root, "gone")))

	c, _ := startOn(t, root)
	listed, err := c.List(t.Context(), false)
	mustDo(t, err)
	states := map[string]string{}
	for _, v := range listed {
		states[v.Name] += v.State
		if told := v.Problem != "" && v.Fix != "" && v.Quota == nil; told != (v.Name != "well") {
			t.Errorf("%+v", v)
		}
	}
	if want := map[string]string{"cut": volume.Damaged, "gone": volume.NotServed, "well": volume.Ready}; !maps.Equal(states, want) {
		t.Errorf("%v, want %v", states, want)
	}
	for name, state := range states {
		if v, err := c.Get(t.Context(), name); err != nil || v.State != state {
			t.Errorf("%s: %+v, %v, want %s", name, v, err, state)
		}
	}
	wantCode(t, c.Delete(t.Context(), "cut", true), Damaged, "restore the record")
	_, err = c.Create(t.Context(), CreateRequest{Name: "cut", Size: 1 << 20})
	wantCode(t, err, Damaged, "restore the record")
	mustDo(t, c.Delete(t.Context(), "gone", false))
}

func TestVolumeOfAClaim(t *testing.T) {
	c, s, _ := start(t)
	ctx := t.Context()
	_, err := s.store().Create(ctx, volume.Spec{
		Name: "pvc-1", Size: 1 << 20, Claim: &volume.Claim{Namespace: "demo", Name: "data", UID: "1"},
	})
	mustDo(t, err)

	_, err = c.Resize(ctx, "pvc-1", 2<<20, 0, false)
	wantCode(t, err, Claimed, `kubectl -n demo patch pvc data -p '{"spec":{"resources":{"requests":{"storage":"2Mi"}}}}'`)
	wantCode(t, c.Delete(ctx, "pvc-1", false), Claimed, "kubectl -n demo delete pvc data")
	wantNoKubectl := func(err error) {
		t.Helper()
		if strings.Contains(err.Error(), "kubectl") {
			t.Errorf("without a cluster: %v", err)
		}
	}
	s.Process.Mode = process.Standalone
	_, err = c.Resize(ctx, "pvc-1", 2<<20, 0, false)
	wantCode(t, err, Claimed, "set spec.resources.requests.storage to 2Mi in the claim's file")
	wantNoKubectl(err)
	err = c.Delete(ctx, "pvc-1", false)
	wantCode(t, err, Claimed, "remove the claim's file")
	wantNoKubectl(err)

	manifests, err := c.Manifests(ctx)
	mustDo(t, err)
	if len(manifests) != 1 {
		t.Fatalf("%d manifests, want 1", len(manifests))
	}
	pv, claim := manifests[0].Volume, manifests[0].Claim
	// Without a UID: another cluster gives the claim another one.
	if ref := pv.Spec.ClaimRef; ref == nil || ref.Namespace != "demo" || ref.Name != "data" || ref.UID != "" {
		t.Errorf("the volume waits for %+v", ref)
	}
	if claim == nil || claim.Namespace != "demo" || claim.Name != "data" || claim.Spec.VolumeName != "pvc-1" {
		t.Errorf("the claim is %+v", claim)
	}

	if v, err := c.Resize(ctx, "pvc-1", 2<<20, 0, true); err != nil || v.Size != 2<<20 {
		t.Errorf("resized by force: %+v, %v", v, err)
	}
	wantCode(t, c.Archive(ctx, "pvc-1", false), Claimed, "use --force to archive")
	mustDo(t, c.Archive(ctx, "pvc-1", true))
	if v, err := c.Get(ctx, "pvc-1"); err != nil || v.State != volume.Archived {
		t.Errorf("archived by force: %+v, %v", v, err)
	}
	wantCode(t, c.Archive(ctx, "pvc-1", true), NotFound, "pvc-1")
	_, err = c.Adopt(ctx, CreateRequest{Name: "pvc-1"})
	mustDo(t, err)
	mustDo(t, c.Delete(ctx, "pvc-1", true))
}

func TestRefusals(t *testing.T) {
	c, _, root := start(t)
	ctx := t.Context()
	_, err := c.Create(ctx, CreateRequest{Name: "there", Size: 1 << 20})
	mustDo(t, err)
	mustDo(t, os.Mkdir(filepath.Join(root, "folder"), 0o755))
	for _, tt := range []struct {
		name    string
		request CreateRequest
		code    Code
		text    string
	}{
		{"name", CreateRequest{Name: "Not A Name", Size: 1 << 20}, Invalid, "Not A Name"},
		{"no size", CreateRequest{Name: "new"}, Invalid, "size"},
		{"path", CreateRequest{Name: "new", Size: 1 << 20, Path: "../out"}, Invalid, "../out"},
		{"state directory", CreateRequest{Name: "new", Size: 1 << 20, Path: ".podnas/volumes"}, Invalid, ".podnas"},
		{"nested", CreateRequest{Name: "new", Size: 1 << 20, Path: "there/in"}, Exists, "there"},
		{"a size without its unit", CreateRequest{Name: "new", Size: 10}, Invalid, "did you mean 10Gi?"},
		{"other size", CreateRequest{Name: "there", Size: 1 << 30}, Exists, "there"},
		{"other options", CreateRequest{Name: "there", Size: 1 << 20, Parameters: map[string]string{"allowedClients": "10.0.0.0/8"}}, Exists, "other than requested in allowedClients"},
		{"folder", CreateRequest{Name: "folder", Size: 1 << 20}, Exists, "folder"},
		{"no room", CreateRequest{Name: "new", Size: 1 << 60}, NoSpace, "1Ei"},
		{"no source", CreateRequest{Name: "new", Size: 1 << 20, Source: "nothing"}, NotFound, "nothing"},
		{"parameter", CreateRequest{Name: "new", Size: 1 << 20, Parameters: map[string]string{"rootsquish": "1"}}, Invalid, "rootsquish"},
		{"parameter's value", CreateRequest{Name: "new", Size: 1 << 20, Parameters: map[string]string{"mode": "rwx"}}, Invalid, "mode"},
		{"access mode", CreateRequest{Name: "new", Size: 1 << 20, AccessModes: []v1.PersistentVolumeAccessMode{"RWX"}}, Invalid, "ReadWriteMany"},
		{"reclaim policy", CreateRequest{Name: "new", Size: 1 << 20, ReclaimPolicy: v1.PersistentVolumeReclaimRecycle}, Invalid, "Retain or Delete"},
		{"mount options", CreateRequest{Name: "new", Size: 1 << 20, MountOptions: []string{"nfsvers=4.0"}}, Invalid, "use nfsvers=3, nfsvers=4.1 or nfsvers=4.2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := c.Create(ctx, tt.request)
			wantCode(t, err, tt.code, tt.text)
		})
	}
	_, err = c.Get(ctx, "nothing")
	wantCode(t, err, NotFound, "nothing")
	for _, odd := range []string{"", "..", "there/", "no/../there", "a?b#c"} {
		_, err = c.Get(ctx, odd)
		wantCode(t, err, NotFound, "")
	}
	_, err = c.Resize(ctx, "nothing", 1, 0, false)
	wantCode(t, err, NotFound, "nothing")
	_, err = c.Manifests(ctx, "there", "nothing")
	wantCode(t, err, NotFound, "nothing")
	_, err = c.Adopt(ctx, CreateRequest{Name: "nothing", Size: 1 << 20})
	wantCode(t, err, NotFound, "nothing")
	if list, err := c.List(ctx, true); err != nil || len(list) != 1 {
		t.Errorf("after all refusals: %+v, %v, want the one volume", list, err)
	}
}

// A copy is under way until the same call says that it is done.
func TestCopy(t *testing.T) {
	c, _, root := start(t)
	_, err := c.Create(t.Context(), CreateRequest{Name: "source", Size: 1 << 20})
	mustDo(t, err)
	mustDo(t, os.WriteFile(filepath.Join(root, "source/file"), []byte("hello"), 0o600))
	request := CreateRequest{Name: "copy", Size: 1 << 20, Source: "source"}
	deadline := time.Now().Add(20 * time.Second)
	v, err := c.Create(t.Context(), request)
	wantCode(t, err, Copying, "source")
	for said := new(Error); errors.As(err, &said) && said.Code == Copying && time.Now().Before(deadline); v, err = c.Create(t.Context(), request) {
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil || v.Source != "source" {
		t.Fatalf("the copy is %+v, %v", v, err)
	}
	if data, err := os.ReadFile(filepath.Join(root, "copy/file")); string(data) != "hello" {
		t.Errorf("the copy reads %q, %v", data, err)
	}
}

func TestDoctor(t *testing.T) {
	c, s, root := start(t)
	for _, name := range []string{"one", "two"} {
		_, err := c.Create(t.Context(), CreateRequest{Name: name, Size: 1 << 20})
		mustDo(t, err)
	}
	r, err := c.Doctor(t.Context())
	mustDo(t, err)
	d := r.Disk
	if r.Process.Root != root || r.Process.Engine != "native" || d.Volumes != 2 || d.Promised != 2<<20 ||
		d.Capacity <= d.Free || d.Free <= 0 || d.Identity != s.store().Identity() || !strings.Contains(d.FileSystem, "(") {
		t.Errorf("report %+v", r)
	}
	if len(r.Checks) != 0 {
		t.Errorf("checks that nobody gave: %+v", r.Checks)
	}

	s.Findings = doctor.NewList([]doctor.Check{
		doctor.One("good", func(context.Context) doctor.Result { return doctor.Good("fine") }),
		doctor.One("nfs", func(context.Context) doctor.Result { return doctor.Fail("restart it", "no answer") }),
	})
	r, err = c.Doctor(t.Context())
	mustDo(t, err)
	want := []doctor.Result{{Check: "good", Status: doctor.OK, Says: "fine"}, {Check: "nfs", Status: doctor.Failed, Says: "no answer", Fix: "restart it"}}
	if !slices.Equal(r.Checks, want) {
		t.Errorf("checks %+v, want %+v", r.Checks, want)
	}
}

// Who uses the volumes: the pods where there is a cluster, and who is connected,
// each once.
func TestUsage(t *testing.T) {
	c, s, _ := start(t)
	u, err := c.Mounted(t.Context())
	if err != nil || u.Cluster || len(u.Users)+len(u.Clients) != 0 {
		t.Errorf("nobody: %+v, %v", u, err)
	}
	s.Clients = func() []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
	}
	pod := controller.User{Namespace: "ns", Pod: "p", Node: "n", Claim: "c", Volume: "v"}
	s.Users = func(context.Context) ([]controller.User, error) { return []controller.User{pod}, nil }
	u, err = c.Mounted(t.Context())
	if err != nil || !u.Cluster || !slices.Equal(u.Users, []controller.User{pod}) ||
		!slices.Equal(u.Clients, []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}) {
		t.Errorf("%+v, %v", u, err)
	}
	s.Users = func(context.Context) ([]controller.User, error) { return nil, errors.New("forbidden") }
	if _, err = c.Mounted(t.Context()); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("the API server refuses: %v", err)
	}
}

// What does not come from this version of the client is bounded and refused.
func TestForeignRequests(t *testing.T) {
	_, _, root := start(t)
	h := http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, root) },
		DisableKeepAlives: true,
	}}
	for _, tt := range []struct {
		name, method, path, body string
		status                   int
		text                     string
	}{
		{"unknown field", http.MethodPost, "/v1/volumes", `{"name":"a","size":1,"compress":true}`, http.StatusBadRequest, "compress"},
		{"no JSON", http.MethodPost, "/v1/volumes", `name: a`, http.StatusBadRequest, "another version"},
		{"nothing", http.MethodPatch, "/v1/volume?name=a", ``, http.StatusBadRequest, "another version"},
		{"too long", http.MethodPost, "/v1/volumes", `{"name":"` + strings.Repeat("a", requestMax) + `"}`, http.StatusBadRequest, "too large"},
		{"unknown path", http.MethodGet, "/v2/volumes", ``, http.StatusNotFound, ""},
		{"unknown method", http.MethodPut, "/v1/volumes", ``, http.StatusMethodNotAllowed, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), tt.method, "http://podnas"+tt.path, strings.NewReader(tt.body))
			mustDo(t, err)
			response, err := h.Do(r)
			mustDo(t, err)
			defer response.Body.Close()
			data, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != tt.status || !bytes.Contains(data, []byte(tt.text)) {
				t.Errorf("%s %q, %v, want status %d and %q", response.Status, data, err, tt.status, tt.text)
			}
		})
	}
}

// The client says in plain words why there is no answer.
func TestClientWithoutServer(t *testing.T) {
	root := newRoot(t)
	if _, err := NewClient(root).List(t.Context(), false); !errors.As(err, new(*NotReachedError)) {
		t.Errorf("nobody listens: %v, want a NotReachedError", err)
	}
	if _, err := NewClient(filepath.Join(root, "nowhere")).List(t.Context(), false); !errors.As(err, new(*NotReachedError)) {
		t.Errorf("no disk: %v, want a NotReachedError", err)
	}

	l, err := Listen(root, nil, slog.New(slog.DiscardHandler))
	mustDo(t, err)
	defer l.Close()
	go func() { // ends each connection, and itself with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
	}()
	if _, err := NewClient(root).List(t.Context(), false); err == nil || !strings.Contains(err.Error(), "closed the connection before it answered") {
		t.Errorf("cut off: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewClient(root).List(ctx, false); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}

	odd := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Second}
	defer odd.Close()
	root = newRoot(t)
	other, err := Listen(root, nil, slog.New(slog.DiscardHandler))
	mustDo(t, err)
	go func() { _ = odd.Serve(other) }()
	if _, err := NewClient(root).List(t.Context(), false); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Errorf("another program: %v", err)
	}
}

// Commands that hang are so many and no more, and podnas doctor is answered beside them.
func TestManyRequests(t *testing.T) {
	c, s, _ := start(t)
	hung, letGo := make(chan struct{}, requestsMax), make(chan struct{})
	s.Users = func(context.Context) ([]controller.User, error) {
		hung <- struct{}{}
		<-letGo
		return nil, nil
	}
	var asking sync.WaitGroup
	for range requestsMax {
		asking.Go(func() {
			if _, err := c.Mounted(t.Context()); err != nil {
				t.Errorf("one of %d: %v", requestsMax, err)
			}
		})
	}
	for range requestsMax {
		<-hung
	}
	_, err := c.List(t.Context(), true)
	wantCode(t, err, Busy, "at work on 32 questions, the oldest (GET /v1/usage) for ")
	if _, err := c.Doctor(t.Context()); err != nil {
		t.Errorf("podnas doctor: %v", err)
	}
	if _, err := c.Create(t.Context(), CreateRequest{Name: "made", Size: 1 << 20}); err != nil {
		t.Errorf("podnas volume create: %v", err)
	}
	close(letGo)
	asking.Wait()
	if _, err := c.List(t.Context(), true); err != nil {
		t.Errorf("when all are answered: %v", err)
	}
}

// Who waits for a copy does not have the usage of all volumes read each time.
func TestToCopy(t *testing.T) {
	reads := 0
	s := &Server{usages: latest.New(diskLate, func(context.Context) (map[string]quota.Usage, error) {
		reads++
		return map[string]quota.Usage{"a": {Bytes: 10}, "b": {Bytes: 20, Partial: true}}, nil
	})}
	for _, tt := range []struct {
		source string
		want   int64
	}{{"a", 10}, {"b", 0}, {"none", 0}, {"a", 10}} {
		if got := s.toCopy(t.Context(), tt.source); got != tt.want {
			t.Errorf("%s: %d bytes, want %d", tt.source, got, tt.want)
		}
	}
	if reads != 1 {
		t.Errorf("the usages are read %d times, want once", reads)
	}
}
