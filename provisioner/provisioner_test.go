package provisioner

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/internal/fixture"
)

func newProvisioner(t *testing.T) (*Provisioner, string) {
	t.Helper()
	store, root := fixture.Store(t)
	return &Provisioner{
		Store:    store,
		Endpoint: StaticEndpoint{IP: netip.MustParseAddr("10.96.0.9"), Port: 2049},
		Log:      slog.New(slog.DiscardHandler),
	}, root
}

func class() *storagev1.StorageClass { return fixture.Class(DefaultName) }

func TestProvision(t *testing.T) {
	p, root := newProvisioner(t)
	options := controller.ProvisionOptions{StorageClass: class(), PVName: "pvc-1234", PVC: fixture.Claim("1500m")}
	options.PVC.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("1.5Mi")
	pv, state, err := p.Provision(t.Context(), options)
	if err != nil || state != controller.ProvisioningFinished {
		t.Fatal(state, err)
	}
	if pv.Name != "pvc-1234" || pv.Annotations[InstanceAnnotation] != p.Store.Identity() || p.Store.Identity() == "" {
		t.Errorf("metadata: %+v", pv.ObjectMeta)
	}
	if pv.Annotations[QuotaAnnotation] != "server" || pv.Annotations[QuotaReasonAnnotation] != "this test counts" {
		t.Errorf("who keeps the size: %v", pv.Annotations)
	}
	spec := pv.Spec
	if spec.NFS == nil || spec.NFS.Server != "10.96.0.9" || spec.NFS.Path != "/pvc-1234" || spec.NFS.ReadOnly {
		t.Errorf("source: %+v", spec.NFS)
	}
	want := []string{"proto=tcp", "port=2049", "nfsvers=4.2", "hard", "actimeo=1"}
	if !slices.Equal(spec.MountOptions, want) {
		t.Errorf("mount options %v, want %v", spec.MountOptions, want)
	}
	if capacity := spec.Capacity[v1.ResourceStorage]; capacity.String() != "1536Ki" {
		t.Errorf("capacity %s", capacity.String())
	}
	if spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimRetain || !slices.Equal(spec.AccessModes, options.PVC.Spec.AccessModes) {
		t.Errorf("reclaim policy %s, access modes %v", spec.PersistentVolumeReclaimPolicy, spec.AccessModes)
	}
	v, err := p.Store.Get("pvc-1234")
	if err != nil || v.Size != 3<<19 || *v.Claim != (volume.Claim{Namespace: "ns", Name: "data", UID: "1234"}) {
		t.Errorf("volume %+v, %v", v, err)
	}
	if info, err := os.Stat(filepath.Join(root, "pvc-1234")); err != nil || !info.IsDir() {
		t.Errorf("directory: %v", err)
	}

	again, _, err := p.Provision(t.Context(), options)
	if err != nil || again.Spec.NFS.Path != pv.Spec.NFS.Path || len(p.Store.List()) != 1 {
		t.Errorf("again: %v, %v, %d volumes", again, err, len(p.Store.List()))
	}
}

// What clients can't change is mounted so that programs are told at once.
func TestReadOnlyIsMountedSo(t *testing.T) {
	p, _ := newProvisioner(t)
	readOnly := class()
	readOnly.Parameters = map[string]string{"readOnly": "true"}
	pv, _, err := p.Provision(t.Context(), controller.ProvisionOptions{StorageClass: readOnly, PVName: "pvc-1", PVC: fixture.Claim("1Mi")})
	if err != nil || !slices.Contains(pv.Spec.MountOptions, "ro") || !pv.Spec.NFS.ReadOnly {
		t.Errorf("of a claim: %+v, %v", pv, err)
	}
	spec, err := p.StaticSpec("v", 1<<20, readOnly, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := ManifestOf(volume.Volume{Manifest: spec.Manifest}); err != nil || !slices.Contains(m.MountOptions, "ro") {
		t.Errorf("without a claim: %+v, %v", m, err)
	}
}

func TestProvisionRefused(t *testing.T) {
	p, _ := newProvisioner(t)
	block := v1.PersistentVolumeBlock
	gold := "gold"
	for _, tt := range []struct {
		name   string
		change func(*v1.PersistentVolumeClaim, *storagev1.StorageClass)
		want   []string // in the error, which is the event that the user reads
	}{
		{"zero size", func(c *v1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("0")
		}, []string{"greater than 0"}},
		{"no size", func(c *v1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.Resources.Requests = nil
		}, []string{"greater than 0"}},
		{"a size without its unit", func(c *v1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("5")
		}, []string{"resources.requests.storage: 5 is less than 1Mi", "did you mean 5Gi?"}},
		{"thousandths", func(c *v1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("100m")
		}, []string{"did you mean 100Mi?"}},
		{"a size that no number has", func(c *v1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("1e30")
		}, []string{"too large"}},
		{"a VolumeAttributesClass", func(c *v1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.VolumeAttributesClassName = &gold
		}, []string{"volumeAttributesClassName gold"}},
		{"a data source without a name", func(c *v1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.DataSource = &v1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim"}
		}, []string{"dataSource has no name"}},
		{"no access mode", func(c *v1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.AccessModes = nil
		}, []string{"accessModes"}},
		{"block", func(c *v1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.VolumeMode = &block
		}, []string{"volumeMode", "Filesystem"}},
		{"selector", func(c *v1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.Selector = &metav1.LabelSelector{}
		}, []string{"selector"}},
		{"data source", func(c *v1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.DataSource = &v1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
		}, []string{"claim other can't be copied"}},
		{"another's data source", func(c *v1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.DataSource = &v1.TypedLocalObjectReference{Kind: "VolumeSnapshot", Name: "other"}
		}, []string{"dataSource", "VolumeSnapshot other"}},
		{"no label for the path", func(_ *v1.PersistentVolumeClaim, c *storagev1.StorageClass) {
			c.Parameters = map[string]string{"pathPattern": "${pvc.labels.team}"}
		}, []string{"no label team"}},
		{"too large", func(c *v1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("4Ei")
		}, []string{"4Ei", "free"}},
		{"unknown parameter", func(_ *v1.PersistentVolumeClaim, c *storagev1.StorageClass) {
			c.Parameters = map[string]string{"b": "1", "a": "2"}
		}, []string{"parameter a", "parameter b"}},
		{"NFSv4.0", func(_ *v1.PersistentVolumeClaim, c *storagev1.StorageClass) {
			c.MountOptions = []string{"vers=4.0"}
		}, []string{"vers=4.0", "use nfsvers=3, nfsvers=4.1 or nfsvers=4.2"}},
		{"UDP", func(_ *v1.PersistentVolumeClaim, c *storagev1.StorageClass) {
			c.MountOptions = []string{"proto=udp"}
		}, []string{"proto=udp", "TCP"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			options := controller.ProvisionOptions{StorageClass: class(), PVName: "pvc-1", PVC: fixture.Claim("1Mi")}
			tt.change(options.PVC, options.StorageClass)
			pv, state, err := p.Provision(t.Context(), options)
			if err == nil || pv != nil || state != controller.ProvisioningFinished {
				t.Fatalf("%v, %v, %v, want a final error", pv, state, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not name %q", err, want)
				}
			}
			if len(p.Store.List()) != 0 {
				t.Error("a volume was made")
			}
		})
	}
}

// A class that asks for 4.1 gets volumes that mount with it, and whose PersistentVolumes have
// nothing of version 3; where 4.1 is not served it gets none, and the claim says why.
func TestProvisionVersion4(t *testing.T) {
	p, _ := newProvisioner(t)
	c := class()
	c.MountOptions = []string{"nfsvers=4.1", "hard"}
	options := controller.ProvisionOptions{StorageClass: c, PVName: "pvc-1", PVC: fixture.Claim("1Mi")}
	pv, _, err := p.Provision(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"proto=tcp", "port=2049", "nfsvers=4.1", "hard"}; !slices.Equal(pv.Spec.MountOptions, want) {
		t.Errorf("mount options %v, want %v", pv.Spec.MountOptions, want)
	}
	if got, want := MountCommand(pv), "sudo mount -t nfs -o proto=tcp,port=2049,nfsvers=4.1,hard 10.96.0.9:/pvc-1 /mnt"; got != want {
		t.Errorf("the command is %q, want %q", got, want)
	}
	p.NoNFS4 = errors.New("NFSv4.1 is turned off by --nfs4=false")
	if _, _, err = p.Provision(t.Context(), options); err != nil {
		t.Errorf("a volume that is there: %v", err)
	}
	options.PVName = "pvc-2"
	_, _, err = p.Provision(t.Context(), options)
	for name, err := range map[string]error{
		"a claim":                  err,
		"a class":                  func() error { _, err := p.ClassOptions(c); return err }(),
		"a volume without a claim": func() error { _, err := p.StaticSpec("x", 1, c, nil); return err }(),
	} {
		if want := "mount option nfsvers=4.1: NFSv4.1 is turned off by --nfs4=false; use nfsvers=3, or remove it"; err == nil || err.Error() != want {
			t.Errorf("%s where 4.1 is not served: %v, want %q", name, err, want)
		}
	}
}

// A class that names no version gets 4.2 where that is served, unless it sets something that only
// version 3 has; and a volume keeps what it got.
func TestVersionChosen(t *testing.T) {
	const four, three = "proto=tcp,port=2049,nfsvers=4.2", "nfsvers=3,proto=tcp,port=2049,mountport=2049,mountproto=tcp,mountvers=3,nolock"
	const timeouts = ",timeo=100,retrans=2"
	off := errors.New("NFSv4.1 is turned off by --nfs4=false")
	for name, tt := range map[string]struct {
		class  []string
		noNFS4 error
		want   string
	}{
		"served":              {nil, nil, four},
		"served-hard":         {[]string{"hard"}, nil, four + ",hard"},
		"version-4.2":         {[]string{"nfsvers=4.2"}, nil, four},
		"version-4.1":         {[]string{"nfsvers=4.1"}, nil, "proto=tcp,port=2049,nfsvers=4.1"},
		"not-served":          {nil, off, three + timeouts},
		"version-3":           {[]string{"nfsvers=3"}, nil, strings.TrimPrefix(three, "nfsvers=3,") + ",nfsvers=3" + timeouts},
		"version-3-timeo":     {[]string{"v3", "timeo=50"}, nil, strings.TrimPrefix(three, "nfsvers=3,") + ",v3,timeo=50"},
		"version-3-retrans":   {[]string{"v3", "retrans=5"}, nil, strings.TrimPrefix(three, "nfsvers=3,") + ",v3,retrans=5"},
		"version-3-soft":      {[]string{"v3", "soft"}, nil, strings.TrimPrefix(three, "nfsvers=3,") + ",v3,soft"},
		"version-3-hard":      {[]string{"v3", "hard"}, nil, strings.TrimPrefix(three, "nfsvers=3,") + ",v3,hard" + timeouts},
		"of-version-3":        {[]string{"nolock"}, nil, three + timeouts},
		"of-version-3-either": {[]string{"nolock"}, off, three + timeouts},
	} {
		p, _ := newProvisioner(t)
		p.NoNFS4 = tt.noNFS4
		c := class()
		c.MountOptions = tt.class
		pv, _, err := p.Provision(t.Context(), controller.ProvisionOptions{StorageClass: c, PVName: name, PVC: fixture.Claim("1Mi")})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		v, err := p.Store.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, p.NoNFS4 = range []error{nil, off} {
			again, err := p.PersistentVolume(t.Context(), v)
			if err != nil {
				t.Fatal(err)
			}
			for _, pv := range []*v1.PersistentVolume{pv, again} {
				if got := strings.Join(pv.Spec.MountOptions, ","); got != tt.want {
					t.Errorf("%s: %s, want %s", name, got, tt.want)
				}
			}
		}
		_, want, _ := strings.Cut(strings.ReplaceAll(tt.want, ",v3", ",nfsvers=3"), "nfsvers=")
		if want, _, _ = strings.Cut(want, ","); MountVersion(v) != want {
			t.Errorf("%s: mounts with version %s, want %s", name, MountVersion(v), want)
		}
	}
}

func TestDelete(t *testing.T) {
	p, root := newProvisioner(t)
	pv, _, err := p.Provision(t.Context(), controller.ProvisionOptions{StorageClass: class(), PVName: "pvc-1", PVC: fixture.Claim("1Mi")})
	if err != nil {
		t.Fatal(err)
	}
	for _, owner := range []string{"", "another-instance"} {
		foreign := pv.DeepCopy()
		foreign.Annotations[InstanceAnnotation] = owner
		var ignored *controller.IgnoredError
		if err := p.Delete(t.Context(), foreign); !errors.As(err, &ignored) {
			t.Errorf("of instance %q: %v, want IgnoredError", owner, err)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "pvc-1")); err != nil {
		t.Fatalf("deleted for another instance: %v", err)
	}
	for range 2 { // the library may ask again
		if err := p.Delete(t.Context(), pv); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "pvc-1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory: %v", err)
	}
}

// A podnas that may have lost its disk tells no error of it, nor that a volume is not there, which another podnas may have made.
func TestDiskIsLost(t *testing.T) {
	p, _ := newProvisioner(t)
	pv, _, err := p.Provision(t.Context(), controller.ProvisionOptions{StorageClass: class(), PVName: "pvc-1", PVC: fixture.Claim("1Mi")})
	if err != nil {
		t.Fatal(err)
	}
	theirs := pv.DeepCopy()
	theirs.Name = "pvc-2"
	tooLarge := controller.ProvisionOptions{StorageClass: class(), PVName: "pvc-3", PVC: fixture.Claim("1Ei")}
	p.WaitBeat = fixture.LostDisk
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Delete(ctx, theirs); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a volume that another podnas may have made is deleted: %v", err)
	}
	if _, _, err := p.Provision(ctx, tooLarge); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a claim is told %v", err)
	}
	p.WaitBeat = fixture.OwnDisk
	if err := p.Delete(t.Context(), theirs); err != nil {
		t.Error(err)
	}
	if _, _, err := p.Provision(t.Context(), tooLarge); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a claim is told %v", err)
	}
}

func TestMountOptions(t *testing.T) {
	v4 := Address{IP: netip.MustParseAddr("10.0.0.1"), Port: 2049}
	v6 := Address{IP: netip.MustParseAddr("fd00::1"), Port: 20490}
	for _, tt := range []struct {
		address Address
		class   []string
		want    string
	}{
		{v4, nil, "nfsvers=3,proto=tcp,port=2049,mountport=2049,mountproto=tcp,mountvers=3,nolock"},
		{v6, nil, "nfsvers=3,proto=tcp6,port=20490,mountport=20490,mountproto=tcp6,mountvers=3,nolock"},
		{v4, []string{"lock", "soft"}, "nfsvers=3,proto=tcp,port=2049,mountport=2049,mountproto=tcp,mountvers=3,lock,soft"},
		{v4, []string{"nfsvers=4.1", "hard"}, "proto=tcp,port=2049,nfsvers=4.1,hard"},
		{v4, []string{"v4", "port=30049"}, "proto=tcp,v4,port=30049"},
		{v6, []string{"vers=4"}, "proto=tcp6,port=20490,vers=4"},
		{v4, []string{"vers=3", "port=30049"}, "proto=tcp,mountport=2049,mountproto=tcp,mountvers=3,nolock,vers=3,port=30049"},
	} {
		if got := strings.Join(mountOptions(tt.address, tt.class), ","); got != tt.want {
			t.Errorf("%v with %v:\n got %s\nwant %s", tt.address, tt.class, got, tt.want)
		}
	}
}

func TestParseStaticEndpoint(t *testing.T) {
	for in, want := range map[string]string{"10.0.0.1": "10.0.0.1", "fd00::1": "fd00::1", "::ffff:10.0.0.1": "10.0.0.1", "nas.example.com": "", "": "", "10.0.0.1:2049": ""} {
		e, err := ParseStaticEndpoint(in, 2049)
		if (err == nil) != (want != "") {
			t.Errorf("%q: %v", in, err)
		}
		if err == nil && (e.IP.String() != want || e.Port != 2049) {
			t.Errorf("%q: %v", in, e)
		}
	}
}

// Who makes claims may choose a part of the path, and the command is for the shell of an administrator.
func TestMountCommandOfAnyPath(t *testing.T) {
	for _, path := range []string{"/pvc-1", "/team/a b", "/a;touch pwned", "/$(touch pwned)", "/`touch pwned`", "/it's", "/a\"b", "/a&b|c>d<e", "/*", "/~", "/ä", `/a\b`} {
		pv := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{
			PersistentVolumeSource: v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "fd00::1", Path: path}}, MountOptions: []string{"hard", "nfsvers=4.2"},
		}}
		cmd := exec.Command("sh", "-c", "sudo() { printf '%s\\n' \"$@\"; }; "+MountCommand(pv))
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if want := "mount\n-t\nnfs\n-o\nhard,nfsvers=4.2\n[fd00::1]:" + path + "\n/mnt\n"; err != nil || string(out) != want {
			t.Errorf("%s: a shell calls\n%s%v, want\n%s", MountCommand(pv), out, err, want)
		}
	}
}
