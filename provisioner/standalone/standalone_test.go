package standalone

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/internal/fixture"
)

// mayRefuse exports nothing if there is a reason.
type mayRefuse struct {
	fixture.NoExports
	refuse *string
}

func (e mayRefuse) Export(v volume.Volume) error {
	if *e.refuse != "" {
		return fmt.Errorf("export %s: %s", v.Name, *e.refuse)
	}
	return nil
}

const provisionedBy = "pv.kubernetes.io/provisioned-by"

const classes = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: podnas, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: podnas.io/nfs
mountOptions: [hard]
allowVolumeExpansion: true
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: keep}
provisioner: podnas.io/nfs
reclaimPolicy: Retain
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: foreign}
provisioner: example.com/other
`

func claimYAML(name, class, size string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s}
spec:
  %s
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: %s}}
`, name, class, size)
}

// bench is a Runner that is scanned by hand.
type bench struct {
	*Runner
	t      *testing.T
	out    bytes.Buffer
	logs   logs
	store  *volume.Store
	refuse string // why no volume can be exported
}

// logs is what was logged, also by what the store does in the background.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logs) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t}
	b.Runner = &Runner{Claims: t.TempDir(), Root: t.TempDir()}
	b.restart()
	t.Cleanup(func() { _ = b.store.Close() })
	b.write("classes.yaml", classes)
	return b
}

// restart is a new process on the same disk and folder.
func (b *bench) restart() {
	b.t.Helper()
	if b.store != nil {
		if err := b.store.Close(); err != nil {
			b.t.Fatal(err)
		}
	}
	b.out.Reset()
	b.logs.Reset()
	log := slog.New(slog.NewTextHandler(&b.logs, nil))
	store, err := volume.Open(volume.Config{Root: b.Root, Exports: mayRefuse{refuse: &b.refuse}, CountOnce: true, Log: log})
	if err != nil {
		b.t.Fatal(err)
	}
	b.store = store
	b.Runner = &Runner{
		Claims: b.Claims, Root: b.Root, Limits: "no limits here", Out: &b.out, Log: log,
		Provisioner: &provisioner.Provisioner{
			Store: store, Name: provisioner.DefaultName, Log: log,
			Endpoint: provisioner.StaticEndpoint{IP: netip.MustParseAddr("127.0.0.1"), Port: 20490},
		},
		gone: map[claimKey]gone{}, served: map[claimKey]string{}, asked: map[claimKey]types.UID{},
	}
}

func (b *bench) write(name, content string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.Claims, name), []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) remove(name string) {
	b.t.Helper()
	if err := os.Remove(filepath.Join(b.Claims, name)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) fifo(name string) {
	b.t.Helper()
	if err := syscall.Mkfifo(filepath.Join(b.Claims, name), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// link makes a symbolic link.
func (b *bench) link(to, name string) {
	b.t.Helper()
	if err := os.Symlink(to, filepath.Join(b.Claims, name)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) scans(n int) {
	for range n {
		b.scan(b.t.Context())
	}
}

// pvs is what stands in provisioned/, by the claim's name.
func (b *bench) pvs() map[string]*v1.PersistentVolume {
	b.t.Helper()
	pvs, err := b.readPVs()
	if err != nil {
		b.t.Fatal(err)
	}
	byClaim := map[string]*v1.PersistentVolume{}
	for _, pv := range pvs.byName {
		byClaim[pv.Spec.ClaimRef.Name] = pv
	}
	return byClaim
}

func TestProvisionAndPrint(t *testing.T) {
	b := newBench(t)
	b.write("app.yaml", claimYAML("data", "storageClassName: podnas", "10Mi")+"---"+claimYAML("default-class", "", "1Mi")+
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: passed-over}\n---\n"+claimYAML("other", "storageClassName: foreign", "1Mi"))
	b.scans(3)
	pvs := b.pvs()
	if len(pvs) != 2 || pvs["data"] == nil || pvs["default-class"] == nil {
		t.Fatalf("provisioned %v; log: %s", pvs, b.logs.String())
	}
	pv := pvs["data"]
	if pv.Kind != "PersistentVolume" || pv.APIVersion != "v1" || pv.Annotations[provisionedBy] != "podnas.io/nfs" ||
		pv.Spec.StorageClassName != "podnas" || pv.Spec.ClaimRef.Namespace != "default" || pv.Spec.ClaimRef.UID != "" {
		t.Errorf("PersistentVolume %+v", pv)
	}
	mount := fmt.Sprintf("mount -t nfs -o proto=tcp,port=20490,nfsvers=4.2,hard 127.0.0.1:/%s /mnt", pv.Name)
	for _, want := range []string{pv.Name, "default/data", "10Mi", filepath.Join(b.Root, pv.Name), mount} {
		if strings.Count(b.out.String(), want) == 0 {
			t.Errorf("%q is not in what was printed:\n%s", want, b.out.String())
		}
	}
	if n := strings.Count(b.out.String(), mount); n != 1 {
		t.Errorf("printed %d times", n)
	}
	if strings.Contains(b.out.String(), "kubectl") {
		t.Errorf("kubectl is advised without a cluster:\n%s", b.out.String())
	}
	if len(b.logs.String()) > 0 && strings.Contains(b.logs.String(), "ERROR") {
		t.Errorf("log: %s", b.logs.String())
	}
}

func TestRestartKeepsVolumes(t *testing.T) {
	b := newBench(t)
	b.write("data.yaml", claimYAML("data", "", "1Mi"))
	b.scans(1)
	before := b.pvs()["data"]
	b.restart()
	b.scans(3)
	if after := b.pvs(); len(after) != 1 || after["data"].Name != before.Name || len(b.store.List()) != 1 {
		t.Errorf("after a restart: %v, want %s", after, before.Name)
	}
	if !strings.Contains(b.out.String(), before.Name) {
		t.Error("not printed again")
	}

	// The files in provisioned/ can be lost without harm.
	if err := os.RemoveAll(filepath.Join(b.Claims, provisionedDir)); err != nil {
		t.Fatal(err)
	}
	b.scans(1)
	if after := b.pvs(); len(after) != 1 || after["data"].Name != before.Name {
		t.Errorf("written again: %v, want %s", after, before.Name)
	}
}

func TestDeletePolicy(t *testing.T) {
	b := newBench(t)
	b.write("data.yaml", claimYAML("data", "", "1Mi"))
	b.scans(1)
	dir := filepath.Join(b.Root, b.pvs()["data"].Name)
	b.remove("data.yaml")
	b.scans(1)
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("deleted at the first sight of a missing claim: %v", err)
	}
	b.scans(1)
	if _, err := os.Stat(dir); err == nil || len(b.pvs()) != 0 || len(b.store.List()) != 0 {
		t.Errorf("after the claim is gone: directory %v, PVs %v", err, b.pvs())
	}
	b.write("data.yaml", claimYAML("data", "", "1Mi"))
	b.scans(1)
	if pv := b.pvs()["data"]; pv == nil || filepath.Join(b.Root, pv.Name) == dir {
		t.Errorf("a new claim of that name: %v, want a new volume", pv)
	}
}

func TestRetainPolicy(t *testing.T) {
	b := newBench(t)
	b.write("data.yaml", claimYAML("data", "storageClassName: keep", "1Mi"))
	b.scans(1)
	old := b.pvs()["data"].Name
	b.remove("data.yaml")
	b.scans(4)
	pv := b.pvs()["data"]
	if pv == nil || pv.Status.Phase != v1.VolumeReleased {
		t.Fatalf("PersistentVolume %+v, want it kept as Released", pv)
	}
	if _, err := os.Stat(filepath.Join(b.Root, old)); err != nil {
		t.Error(err)
	}
	if n := strings.Count(b.out.String(), "and its volume "+old+" is released"); n != 1 {
		t.Errorf("said %d times", n)
	}
	// The old data is nobody's; a new claim gets a new volume.
	b.restart()
	b.write("data.yaml", claimYAML("data", "storageClassName: keep", "1Mi"))
	b.scans(2)
	if volumes := b.store.List(); len(volumes) != 2 {
		t.Errorf("%d volumes, want the old and a new one", len(volumes))
	}
	if _, err := b.store.Get(old); err != nil {
		t.Error(err)
	}
}

// What must not cost anybody a volume.
func TestMistakesDeleteNothing(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(b *bench)
		want   string // in the log
	}{
		{"a broken file", func(b *bench) { b.write("data.yaml", "kind: [broken") }, "data.yaml"},
		{"another broken file", func(b *bench) { b.remove("data.yaml"); b.write("other.yaml", "a: b: c") }, "other.yaml"},
		{"an unknown field", func(b *bench) {
			b.write("data.yaml", strings.Replace(claimYAML("data", "", "1Mi"), "accessModes", "accesModes", 1))
		}, "accesModes"},
		{"the claim twice", func(b *bench) { b.write("twice.yaml", claimYAML("data", "", "1Mi")) }, "is in the folder 2 times, in data.yaml (line 2) and twice.yaml (line 2)"},
		{"another folder", func(b *bench) { b.Claims = b.t.TempDir() }, ""},
		{"no folder", func(b *bench) { b.Claims += "/missing" }, "folder"},
		{"a slip in the kind", func(b *bench) {
			b.write("data.yaml", strings.Replace(claimYAML("data", "", "1Mi"), "PersistentVolumeClaim", "PersistentVolumeClaims", 1))
		}, "PersistentVolumeClaims"},
		{"a kind of another version", func(b *bench) {
			b.write("data.yaml", strings.Replace(claimYAML("data", "", "1Mi"), "apiVersion: v1", "apiVersion: apps/v1", 1))
		}, "apps/v1"},
		{"a version that is none", func(b *bench) {
			b.write("data.yaml", strings.Replace(claimYAML("data", "", "1Mi"), "apiVersion: v1", "apiVersion: v11", 1))
		}, "v11"},
		{"unknown kind", func(b *bench) { b.write("data.yaml", "metadata: {name: data}") }, "kind is missing"},
		{"an emptied file", func(b *bench) { b.write("data.yaml", "") }, "empty"},
		{"a file of comments", func(b *bench) {
			b.write("data.yaml", "# "+strings.ReplaceAll(claimYAML("data", "", "1Mi"), "\n", "\n# "))
		}, "empty"},
		{"a list", func(b *bench) { b.write("data.yaml", "apiVersion: v1\nkind: List\nitems: []") }, "empty"},
		{"a list of claims", func(b *bench) { b.write("data.yaml", "apiVersion: v1\nkind: PersistentVolumeClaimList\nitems: []") }, "empty"},
		{"no manifests", func(b *bench) { b.remove("data.yaml"); b.remove("classes.yaml") }, "no manifest"},
		{"all files renamed", func(b *bench) {
			for _, name := range []string{"data.yaml", "classes.yaml"} {
				if err := os.Rename(filepath.Join(b.Claims, name), filepath.Join(b.Claims, name+".bak")); err != nil {
					b.t.Fatal(err)
				}
			}
		}, "no manifest"},
		{"a damaged PersistentVolume", func(b *bench) {
			b.remove("data.yaml")
			b.write(provisionedDir+"/"+b.pvs()["data"].Name+".yaml", "kind: Pod")
		}, "put aside"},
		{"a fifo in the claim's place", func(b *bench) { b.remove("data.yaml"); b.fifo("data.yaml") }, "not a regular file"},
		{"a fifo beside it", func(b *bench) { b.remove("data.yaml"); b.fifo("other.json") }, "not a regular file"},
		{"a link to a fifo", func(b *bench) { b.fifo("fifo"); b.remove("data.yaml"); b.link("fifo", "data.yaml") }, "not a regular file"},
		{"a link to a device", func(b *bench) { b.remove("data.yaml"); b.link("/dev/zero", "data.yaml") }, "not a regular file"},
		{"a link to a directory", func(b *bench) { b.remove("data.yaml"); b.link("/", "data.yaml") }, "not a regular file"},
		{"a file without an end", func(b *bench) { b.write("data.yaml", strings.Repeat("#", fileMax+1)) }, "larger than"},
		{"a PersistentVolume that is a fifo", func(b *bench) {
			b.remove("data.yaml")
			name := provisionedDir + "/" + b.pvs()["data"].Name + ".yaml"
			b.remove(name)
			b.fifo(name)
		}, "put aside"},
		{"a PersistentVolume without an end", func(b *bench) {
			b.remove("data.yaml")
			b.write(provisionedDir+"/"+b.pvs()["data"].Name+".yaml", strings.Repeat("#", fileMax+1))
		}, "put aside"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.write("data.yaml", claimYAML("data", "", "1Mi"))
			b.scans(1)
			dir := filepath.Join(b.Root, b.pvs()["data"].Name)
			tt.change(b)
			done := make(chan struct{})
			go func() { defer close(done); b.scans(4) }()
			select {
			case <-done:
			case <-time.After(30 * time.Second):
				t.Fatal("it hangs")
			}
			if _, err := os.Stat(dir); err != nil {
				t.Errorf("the volume: %v", err)
			}
			if tt.want != "" && strings.Count(b.logs.String(), tt.want) == 0 {
				t.Errorf("%q is not in the log:\n%s", tt.want, b.logs.String())
			}
			if strings.Count(b.logs.String(), "level=ERROR") > 1 || strings.Count(b.logs.String(), "level=WARN") > 1 {
				t.Errorf("said more than once:\n%s", b.logs.String())
			}
			// It is mended, and that is said too.
			if tt.want == "" || tt.name == "no folder" || strings.Contains(tt.name, "PersistentVolume") {
				return
			}
			for _, name := range []string{"data.yaml", "other.yaml", "other.json", "twice.yaml"} {
				_ = os.Remove(filepath.Join(b.Claims, name)) // if it is there
			}
			b.logs.Reset()
			b.write("data.yaml", claimYAML("data", "", "1Mi"))
			b.write("classes.yaml", classes)
			b.scans(2)
			if strings.Contains(b.logs.String(), "level=ERROR") || len(b.pvs()) != 1 || len(b.store.List()) != 1 {
				t.Errorf("when it is mended: %v, log:\n%s", b.pvs(), b.logs.String())
			}
		})
	}
}

func TestProblemsAreSaidOnce(t *testing.T) {
	b := newBench(t)
	b.write("big.yaml", claimYAML("big", "", "4Ei"))
	b.write("classless.yaml", claimYAML("classless", "storageClassName: nowhere", "1Mi"))
	b.scans(5)
	for _, want := range []string{"4Ei", "StorageClass nowhere"} {
		if n := strings.Count(b.logs.String(), want); n != 1 {
			t.Errorf("%q is said %d times:\n%s", want, n, b.logs.String())
		}
	}
	// A claim that is put right is provisioned.
	b.write("big.yaml", claimYAML("big", "", "1Mi"))
	b.scans(1)
	if b.pvs()["big"] == nil {
		t.Errorf("not provisioned; log: %s", b.logs.String())
	}
}

// A claim that can't be fulfilled is tried every second. It is one failure, and one
// line, until the reason is another.
func TestTriesAreOneFailure(t *testing.T) {
	b := newBench(t)
	create := func() (done, failed uint64) {
		a := b.store.Activities()[0]
		return a.Done, a.Failed
	}
	check := func(wantDone, wantFailed, wantLines int) {
		t.Helper()
		b.scans(5)
		done, failed := create()
		lines := strings.Count(b.logs.String(), "claim default/big has a problem")
		if done != uint64(wantDone) || failed != uint64(wantFailed) || lines != wantLines {
			t.Errorf("%d made, %d failures, %d lines; want %d, %d, %d:\n%s", done, failed, lines, wantDone, wantFailed, wantLines, b.logs.String())
		}
	}
	b.write("big.yaml", claimYAML("big", "", "4Ei"))
	check(0, 1, 1)
	b.refuse = "no thread is left"
	b.write("big.yaml", claimYAML("big", "", "1Mi"))
	check(0, 2, 2)
	b.refuse = "no memory is left"
	check(0, 3, 3)
	b.refuse = ""
	check(1, 3, 3)
	// The same reason again, for a claim that was fulfilled in between, is another one.
	b.remove("big.yaml")
	b.scans(3)
	b.write("big.yaml", claimYAML("big", "", "4Ei"))
	check(1, 4, 4)
}

func TestExpand(t *testing.T) {
	b := newBench(t)
	b.write("data.yaml", claimYAML("data", "", "1Mi")+"---"+claimYAML("fixed", "storageClassName: keep", "1Mi"))
	b.scans(2)
	before := b.pvs()["data"].Name
	b.write("data.yaml", claimYAML("data", "", "3Mi")+"---"+claimYAML("fixed", "storageClassName: keep", "3Mi"))
	b.scans(3)
	pv := b.pvs()["data"]
	if pv.Name != before || pv.Spec.Capacity.Storage().String() != "3Mi" {
		t.Errorf("PersistentVolume %s with %s, want %s with 3Mi", pv.Name, pv.Spec.Capacity.Storage(), before)
	}
	if v, err := b.store.Get(before); err != nil || v.Size != 3<<20 {
		t.Errorf("volume of %d bytes, %v", v.Size, err)
	}
	if n := strings.Count(b.logs.String(), "allowVolumeExpansion"); n != 1 || b.pvs()["fixed"].Spec.Capacity.Storage().String() != "1Mi" {
		t.Errorf("a class that allows nothing: said %d times, %s", n, b.pvs()["fixed"].Spec.Capacity.Storage())
	}
	b.write("data.yaml", claimYAML("data", "", "2Mi")+"---"+claimYAML("fixed", "storageClassName: keep", "1Mi"))
	b.scans(3)
	if n := strings.Count(b.logs.String(), "smaller"); n != 1 || b.pvs()["data"].Spec.Capacity.Storage().String() != "3Mi" {
		t.Errorf("shrinking: said %d times, %s", n, b.pvs()["data"].Spec.Capacity.Storage())
	}
}

func TestCopy(t *testing.T) {
	b := newBench(t)
	b.write("source.yaml", claimYAML("source", "", "1Mi"))
	b.scans(1)
	source := filepath.Join(b.Root, b.pvs()["source"].Name)
	for i := range 100 {
		if err := os.WriteFile(filepath.Join(source, fmt.Sprint(i)), []byte("data"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.write("copy.yaml", claimYAML("copy", "dataSource: {kind: PersistentVolumeClaim, name: source}", "1Mi")+"---"+
		claimYAML("of-nothing", "dataSource: {kind: PersistentVolumeClaim, name: nobody}", "1Mi"))
	b.scan(t.Context())
	b.restart() // while it is copied, perhaps
	for deadline := time.Now().Add(20 * time.Second); b.pvs()["copy"] == nil; b.scan(t.Context()) {
		if time.Now().After(deadline) {
			t.Fatalf("no copy; log: %s", b.logs.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
	if data, err := os.ReadFile(filepath.Join(b.Root, b.pvs()["copy"].Name, "99")); string(data) != "data" {
		t.Errorf("the copy's file has %q, %v", data, err)
	}
	if n := len(b.store.List()); n != 2 {
		t.Errorf("%d volumes, want the source and its copy", n)
	}
	if n := strings.Count(b.logs.String(), "claim nobody can't be copied"); n != 1 {
		t.Errorf("a missing source is said %d times:\n%s", n, b.logs.String())
	}
}

// The files of a mounted ConfigMap are symbolic links.
func TestLinkedClaim(t *testing.T) {
	b := newBench(t)
	b.write("..data", claimYAML("data", "", "1Mi"))
	b.link("..data", "data.yaml")
	b.scans(1)
	if b.pvs()["data"] == nil {
		t.Errorf("not provisioned; log: %s", b.logs.String())
	}
}

// A Runner at rest looks again when the folder changes, and a minute after a command has changed the volumes.
func TestRest(t *testing.T) {
	b := newBench(t)
	_, err := b.store.Create(t.Context(), volume.Spec{Name: "first", Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		change func(changed chan<- struct{}, stop func())
		took   time.Duration
	}{
		{"the folder changes", func(changed chan<- struct{}, _ func()) { close(changed) }, time.Second + settleTime},
		{"it ends", func(_ chan<- struct{}, stop func()) { stop() }, time.Second},
		{"a volume is resized", func(chan<- struct{}, func()) {
			if _, err := b.store.Resize(t.Context(), "first", 2<<20, 0); err != nil {
				t.Error(err)
			}
		}, restInterval},
		{"nothing, and then it ends", func(_ chan<- struct{}, stop func()) { time.AfterFunc(10*restInterval, stop) }, time.Second + 10*restInterval},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				changed, volumes, began := make(chan struct{}), b.store.List(), time.Now()
				time.AfterFunc(time.Second, func() { test.change(changed, stop) })
				b.rest(ctx, changed, volumes)
				if took := time.Since(began); took != test.took {
					t.Errorf("it rested for %s, want %s", took, test.took)
				}
			})
		})
	}
}
