//go:build cluster

package cluster_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/internal/volume"
)

// with gives a class parameters.
func with(parameters map[string]string) func(*storagev1.StorageClass) {
	return func(c *storagev1.StorageClass) { c.Parameters = parameters }
}

// Every parameter shows where it should: on the PersistentVolume, on the disk, in
// the record that the server goes by.
func TestParameters(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	all := n.class("-all", with(map[string]string{
		"uid": "1000", "gid": "2000", "mode": "0750",
		"rootSquash": "true", "allSquash": "true", "anonUid": "99", "anonGid": "98",
		"allowedClients": "127.0.0.0/8, fd00::/8, 192.0.2.7", "readOnly": "true", "sync": "false",
		"onDelete": "archive", "overcommit": "2",
		"pathPattern":  "${pvc.namespace}/${pvc.labels['app.kubernetes.io/name']}/${pvc.annotations.example.com/part}/${pvc.name}",
		"mountOptions": "hard,timeo=50",
	}))
	n.claim("all", all, "1Mi", func(c *corev1.PersistentVolumeClaim) {
		c.Labels = map[string]string{"app.kubernetes.io/name": "shop"}
		c.Annotations = map[string]string{"example.com/part": "db"}
	})
	v := n.bound("all")
	path := n.name + "/shop/db/all"
	if v.Spec.NFS.Path != "/"+path || !v.Spec.NFS.ReadOnly {
		t.Errorf("NFS source %+v, want /%s, read-only", v.Spec.NFS, path)
	}
	if got := v.Annotations["pv.beta.kubernetes.io/gid"]; got != "2000" {
		t.Errorf("the volume's group is %q, want 2000", got)
	}
	if got := v.Spec.MountOptions; !slices.Contains(got, "hard") || !slices.Contains(got, "timeo=50") {
		t.Errorf("mount options %q", got)
	}
	checkOwner(t, filepath.Join(p.root, path), 1000, 2000, 0o750)
	r := p.record(v.Name)
	want := volume.Options{
		RootSquash: true, AllSquash: true, AnonUID: 99, AnonGID: 98, ReadOnly: true, Async: true,
		Clients: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("192.0.2.7/32")},
	}
	if !reflect.DeepEqual(r.Options, want) || r.OnDelete != volume.ArchiveFiles || r.Path != path {
		t.Errorf("the record has %+v, on delete %s, at %s", r.Options, r.OnDelete, r.Path)
	}

	// A class of the Ganesha provisioner, with nothing changed but the name.
	n.claim("ganesha", n.class("-ganesha", with(map[string]string{"gid": "1001", "rootSquash": "true", "mountOptions": "hard"})), "1Mi", nil)
	v = n.bound("ganesha")
	checkOwner(t, filepath.Join(p.root, v.Name), 0, 1001, 0o2771)
	if v.Annotations["pv.beta.kubernetes.io/gid"] != "1001" || !p.record(v.Name).Options.RootSquash || !slices.Contains(v.Spec.MountOptions, "hard") {
		t.Errorf("volume %+v %q", v.Annotations, v.Spec.MountOptions)
	}

	n.claim("plain", n.class("", nil), "1Mi", nil)
	v = n.bound("plain")
	checkOwner(t, filepath.Join(p.root, v.Name), 0, 0, 0o777)
	if r := p.record(v.Name); !reflect.DeepEqual(r.Options, volume.Options{}) || v.Annotations["pv.beta.kubernetes.io/gid"] != "" {
		t.Errorf("a class without parameters gives %+v, %v", r.Options, v.Annotations)
	}
}

func checkOwner(t *testing.T, dir string, uid, gid, mode uint32) {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		t.Error(err)
	} else if st.Uid != uid || st.Gid != gid || st.Mode&0o7777 != mode {
		t.Errorf("%s is of %d:%d with mode %o, want %d:%d with %o", dir, st.Uid, st.Gid, st.Mode&0o7777, uid, gid, mode)
	}
}

// What can't be made gets an event that says what to change, and nothing is made.
func TestRefused(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	plain := n.class("", nil)
	block, group := corev1.PersistentVolumeBlock, "snapshot.storage.k8s.io"
	n.claim("taken", n.class("-taken", with(map[string]string{"pathPattern": "shared/data"})), "1Mi", nil)
	taken := n.bound("taken")

	for _, tt := range []struct {
		name   string
		class  string
		change func(*corev1.PersistentVolumeClaim)
		want   []string
	}{
		{"block", plain, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &block }, []string{"volumeMode: Filesystem"}},
		{"selector", plain, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}, []string{"selector", "remove it"}},
		{"snapshot", plain, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: "s"}
		}, []string{"VolumeSnapshot s"}},
		{"missing-source", plain, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "nobody"}
		}, []string{"claim nobody", "does not exist in namespace"}},
		{
			"unknown-parameters", n.class("-unknown", with(map[string]string{"rootSqash": "true", "gid": "wheel"})), nil,
			[]string{"unknown parameter rootSqash", "rootSquash?", "gid", `"wheel"`},
		},
		{"csi-parameter", n.class("-csi", with(map[string]string{"csi.storage.k8s.io/fstype": "xfs"})), nil, []string{"CSI", "remove it"}},
		{"version-4", n.class("-v4", func(c *storagev1.StorageClass) { c.MountOptions = []string{"vers=4.0"} }), nil, []string{"vers=4.0", "use nfsvers=3, nfsvers=4.1 or nfsvers=4.2"}},
		{"no-label", n.class("-label", with(map[string]string{"pathPattern": "${pvc.labels.team}/${pvc.name}"})), nil, []string{"no label team"}},
		{"same-path", n.class("-same", with(map[string]string{"pathPattern": "shared/data"})), nil, []string{"shared/data"}},
		{"nested-path", n.class("-nested", with(map[string]string{"pathPattern": "shared/data/below"})), nil, []string{"shared/data"}},
		{"outer-path", n.class("-outer", with(map[string]string{"pathPattern": "shared"})), nil, []string{"shared"}},
		{"reserved-path", n.class("-reserved", with(map[string]string{"pathPattern": ".podnas/trash/x"})), nil, []string{".podnas"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := &tenant{t: t, name: n.name, provisioner: n.provisioner}
			n.claim(tt.name, tt.class, "1Mi", tt.change)
			message := n.failure(tt.name)
			t.Log(message)
			for _, want := range tt.want {
				if !strings.Contains(message, want) {
					t.Errorf("the event lacks %q", want)
				}
			}
		})
	}
	if got := p.state("volumes"); !slices.Equal(got, []string{taken.Name + ".json"}) {
		t.Errorf("there are records %q, want that of %s alone", got, taken.Name)
	}
}

// All the access modes that Kubernetes knows.
func TestAccessModes(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	class := n.class("", nil)
	for _, mode := range []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod} {
		name := strings.ToLower(string(mode))
		n.claim(name, class, "1Mi", func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{mode} })
		if v := n.bound(name); !slices.Equal(v.Spec.AccessModes, []corev1.PersistentVolumeAccessMode{mode}) {
			t.Errorf("%s: the volume has %v", mode, v.Spec.AccessModes)
		}
	}
}

// What a class says of the end of its volumes.
func TestOnDelete(t *testing.T) {
	n := newTenant(t)
	p := newPodnas(t, n.provisioner, local)
	p.start()
	for _, on := range []volume.OnDelete{volume.ArchiveFiles, volume.RetainFiles} {
		class := n.class("-"+string(on), with(map[string]string{"onDelete": string(on)}))
		n.claim(string(on), class, "1Mi", nil)
		v := n.bound(string(on))
		writeFile(t, filepath.Join(p.root, v.Spec.NFS.Path, "file"), string(on))
		n.deleteClaim(string(on))
		n.gone(v.Name)
		if got := p.find("file", string(on)); len(got) != 1 {
			t.Errorf("%s: the file is at %q, want one place", on, got)
		}
	}
	kept := p.find("file", string(volume.RetainFiles))
	if len(kept) == 1 && strings.Contains(kept[0], ".podnas") {
		t.Errorf("the retained file is at %s, want it where it was", kept[0])
	}
}

// find returns where, on the disk, there are files of that name and content.
func (p *podnas) find(name, content string) []string {
	p.t.Helper()
	var found []string
	err := filepath.WalkDir(p.root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.Name() != name {
			return err
		}
		if data, _ := os.ReadFile(path); string(data) == content {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return found
}
