package standalone

import (
	"fmt"
	"strings"
	"testing"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/volume"
)

// classYAML is a StorageClass with annotations.
func classYAML(name, provisioner, annotations string) string {
	return fmt.Sprintf("apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: %s, annotations: {%s}}\nprovisioner: %s\n---\n", name, annotations, provisioner)
}

// A claim has the class that Kubernetes would give it, or no volume, and its problem is told.
func TestClassOfAClaim(t *testing.T) {
	const (
		ours, others = "podnas.io/nfs", "example.com/other"
		marked       = `storageclass.kubernetes.io/is-default-class: "true"`
		betaMarked   = `storageclass.beta.kubernetes.io/is-default-class: "true"`
	)
	for _, tt := range []struct {
		name, classes, annotations, spec string
		class                            string // of its volume, if it gets one
		want                             string // else the problem; "": it is passed over
	}{
		{"a default", classYAML("a", ours, "") + classYAML("b", ours, marked), "", "", "b", ""},
		{"a default by the beta annotation", classYAML("a", ours, "") + classYAML("b", ours, betaMarked), "", "", "b", ""},
		{"marked as no default", classYAML("a", ours, `storageclass.kubernetes.io/is-default-class: "false"`), "", "", "", "no StorageClass in the folder is the default"},
		{"no default", classYAML("a", ours, ""), "", "", "", "no StorageClass in the folder is the default"},
		{"two defaults", classYAML("a", ours, marked) + classYAML("b", ours, marked) + classYAML("c", ours, ""), "", "", "", "several StorageClasses are the default: a, b."},
		{"two defaults, one by the beta annotation", classYAML("a", ours, marked) + classYAML("b", ours, betaMarked), "", "", "", "several StorageClasses are the default: a, b."},
		{"two defaults, one of them podnas's", classYAML("a", others, marked) + classYAML("b", ours, marked), "", "", "", "several StorageClasses are the default: a, b."},
		{"two defaults, and the claim has a class", classYAML("a", ours, marked) + classYAML("b", ours, marked), "", "storageClassName: b", "b", ""},
		{"the default is another provisioner's", classYAML("a", others, marked) + classYAML("b", ours, ""), "", "", "", "the default StorageClass, a, is for the provisioner example.com/other"},
		{"two defaults of another provisioner", classYAML("a", others, marked) + classYAML("b", others, marked), "", "", "", "several StorageClasses are the default: a, b."},
		{"a class of another provisioner", classYAML("a", others, ""), "", "storageClassName: a", "", ""},
		{"an empty class", classYAML("a", ours, marked), "", `storageClassName: ""`, "", ""},
		{"a class that is not there", classYAML("a", ours, marked), "", "storageClassName: b", "", "StorageClass b: add it"},
		{"a class that is there twice", classYAML("a", ours, "") + classYAML("a", ours, "x: y"), "", "storageClassName: a", "", "StorageClass a: it is in the folder 2 times, in class.yaml (line 1) and class.yaml (line 6)"},
		{"the beta annotation", classYAML("a", ours, marked) + classYAML("b", ours, ""), "volume.beta.kubernetes.io/storage-class: b", "", "b", ""},
		{"the beta annotation of another provisioner's class", classYAML("a", ours, marked) + classYAML("b", others, ""), "volume.beta.kubernetes.io/storage-class: b", "", "", ""},
		{"an empty beta annotation", classYAML("a", ours, marked), `volume.beta.kubernetes.io/storage-class: ""`, "", "", ""},
		{"the beta annotation and another class: the annotation counts", classYAML("a", ours, "") + classYAML("b", ours, ""), "volume.beta.kubernetes.io/storage-class: b", "storageClassName: a", "b", ""},
		{"an empty beta annotation and a class", classYAML("a", ours, marked), `volume.beta.kubernetes.io/storage-class: ""`, "storageClassName: a", "", ""},
		{"the beta annotation of a class that is not there", classYAML("a", ours, marked), "volume.beta.kubernetes.io/storage-class: b", "", "", "StorageClass b: add it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.remove("classes.yaml")
			b.write("class.yaml", tt.classes)
			b.write("data.yaml", strings.Replace(claimYAML("data", tt.spec, "1Mi"), "name: data", "name: data, annotations: {"+tt.annotations+"}", 1))
			b.scans(3)
			b.checkGiven(tt.want, tt.class != "")
			if pv := b.pvs()["data"]; pv != nil && pv.Spec.StorageClassName != tt.class {
				t.Errorf("of class %s, want %s", pv.Spec.StorageClassName, tt.class)
			}
		})
	}
}

// checkGiven makes sure that the claim data has a volume, or none, and that its problem is
// told once, and is a finding, or that there is none.
func (b *bench) checkGiven(want string, given bool) {
	b.t.Helper()
	if n := len(b.store.List()); given != (n == 1) || given != (b.pvs()["data"] != nil) {
		b.t.Errorf("%d volumes, PersistentVolumes %v; log:\n%s", n, b.pvs(), &b.logs)
	}
	about, n := "standalone: claim default/data has a problem", strings.Count(b.logs.String(), "standalone: claim default/data has a problem")
	found := ""
	for _, r := range b.Findings() {
		if r.Status == doctor.Failed && r.Check == "claim default/data" {
			found = r.Says
		}
	}
	if want == "" {
		if n > 0 || found != "" {
			b.t.Errorf("told %d times: %s; log:\n%s", n, found, &b.logs)
		}
	} else if n != 1 || !strings.Contains(found, want) {
		b.t.Errorf("%q is told %d times, want %q once in %q; log:\n%s", found, n, want, about, &b.logs)
	}
}

// What podnas can't do is an error that says what to do, and no volume.
func TestFieldsThatPodnasCannotFulfil(t *testing.T) {
	for _, tt := range []struct{ name, spec, want string }{
		{"a block volume", "volumeMode: Block", "use volumeMode: Filesystem"},
		{"a selector", "selector: {matchLabels: {a: b}}", "a selector chooses among existing volumes and can't be used for provisioning: remove it"},
		{"an empty selector", "selector: {}", "remove it"},
		{"a VolumeAttributesClass", "volumeAttributesClassName: gold", "volumeAttributesClassName gold"},
		{"a snapshot", "dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: s}", "VolumeSnapshot s can't be copied: there are none without a cluster"},
		{"a snapshot by dataSourceRef", "dataSourceRef: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: s}", "VolumeSnapshot s can't be copied"},
		{"a claim of another group", "dataSource: {apiGroup: example.com, kind: PersistentVolumeClaim, name: data}", "podnas can only copy claims"},
		{"a source without a kind", "dataSource: {name: other}", "podnas can only copy claims"},
		{"a source without a name", "dataSource: {kind: PersistentVolumeClaim}", "dataSource has no name"},
		{"another namespace", "dataSourceRef: {kind: PersistentVolumeClaim, name: other, namespace: elsewhere}", "a claim can only be copied within its namespace"},
		{"two sources", "dataSource: {kind: PersistentVolumeClaim, name: a}\n  dataSourceRef: {kind: PersistentVolumeClaim, name: b}", "dataSource and dataSourceRef differ"},
		{"a source that is not there", "dataSource: {kind: PersistentVolumeClaim, name: other}", "claim other can't be copied"},
		{"itself", "dataSource: {kind: PersistentVolumeClaim, name: data}", "claim data can't be copied"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.write("data.yaml", claimYAML("data", tt.spec, "1Mi"))
			b.scans(3)
			b.checkGiven(tt.want, false)
			// The claim is corrected, and gets a volume.
			b.write("data.yaml", claimYAML("data", "volumeMode: Filesystem", "1Mi"))
			b.scans(1)
			if b.pvs()["data"] == nil {
				t.Errorf("no volume; log:\n%s", &b.logs)
			}
		})
	}
}

// A size is rounded up as the API server does. One that no volume has is refused with what was
// probably meant.
func TestQuantities(t *testing.T) {
	for _, tt := range []struct {
		size string
		want int64  // of the volume
		err  string // else
	}{
		{"1Mi", 1 << 20, ""},
		{"1048576", 1 << 20, ""},
		{"0.1Gi", 107374183, ""},
		{`"0.1Gi"`, 107374183, ""},
		{"1.5Mi", 3 << 19, ""},
		{"1.5Gi", 3 << 29, ""},
		{"500M", 500e6, ""},
		{"5e7", 5e7, ""},
		{"5E7", 5e7, ""},
		{"20000k", 20e6, ""},
		{"1048576001m", 1048577, ""},
		{"1048576000u", 0, "less than 1Mi"},
		{"1", 0, "1 is less than 1Mi, the smallest size of a volume: did you mean 1Gi?"},
		{"20", 0, "did you mean 20Gi?"},
		{`"20"`, 0, "did you mean 20Gi?"},
		{"100m", 0, "100m is less than 1Mi, the smallest size of a volume: did you mean 100Mi?"},
		{"1e3", 0, "did you mean 1Gi?"},
		{"512Ki", 0, "did you mean 1Gi?"},
		{"1048575", 0, "did you mean 1048575Gi?"},
		{"1e30", 0, "1e+30 is too large: a size must be less than 8Ei"},
		{"8Ei", 0, "too large"},
		{"16Ei", 0, "too large"},
		{"9223372036854775807", 0, "too large"},
		{"7Ei", 0, "7Ei is requested, but only"},
		{"10E", 0, "too large"},
	} {
		t.Run(tt.size, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.write("data.yaml", claimYAML("data", "", tt.size))
			b.scans(3)
			b.checkGiven(tt.err, tt.err == "")
			if volumes := b.store.List(); tt.err == "" && len(volumes) == 1 && volumes[0].Size != tt.want {
				t.Errorf("%d bytes, want %d", volumes[0].Size, tt.want)
			}
			// The request of a claim that has a volume is no other one, either.
			b.write("data.yaml", claimYAML("data", "", "1Mi"))
			b.scans(1)
			before := b.fill("data")
			b.write("data.yaml", claimYAML("data", "", tt.size))
			b.scans(3)
			b.checkFilled(before)
			if v, err := b.store.Get(before["data"]); err != nil || v.Size != max(tt.want, 1<<20) {
				t.Errorf("%d bytes after expansion, %v", v.Size, err)
			}
		})
	}
}

// A volume that was made smaller than podnas now makes them is served and grows as before.
func TestSmallVolumeOfBefore(t *testing.T) {
	b := newBench(t)
	_, err := b.store.Create(t.Context(), volume.Spec{Name: "small", Size: 1000, Claim: &volume.Claim{Namespace: "default", Name: "data", UID: "1"}})
	if err != nil {
		t.Fatal(err)
	}
	b.write("data.yaml", claimYAML("data", "", "1000"))
	b.scans(2)
	before := b.fill("data")
	b.restart()
	b.scans(2)
	b.checkFilled(before)
	b.checkGiven("", true)
	b.write("data.yaml", claimYAML("data", "", "2000"))
	b.scans(2)
	if v, err := b.store.Get(before["data"]); err != nil || v.Size != 2000 {
		t.Errorf("%d bytes after expansion, %v; log:\n%s", v.Size, err, &b.logs)
	}
}
