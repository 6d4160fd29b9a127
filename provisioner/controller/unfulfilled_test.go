package controller

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	library "sigs.k8s.io/sig-storage-lib-external-provisioner/v8/controller"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/internal/fixture"
)

// A claim is told while it is there and waits, for as long as it is for us to fulfil.
func TestUnfulfilled(t *testing.T) {
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	core := factory.Core().V1()
	claims, volumes := core.PersistentVolumeClaims().Informer().GetIndexer(), core.PersistentVolumes().Informer().GetIndexer()
	classes := factory.Storage().V1().StorageClasses()
	var provision, expand provisioner.Problems
	u := &unfulfilled{
		name: provisioner.DefaultName, claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister(), classes: classes.Lister(),
		provision: &provision, expand: &expand,
	}
	add := func(index cache.Indexer, object any) {
		t.Helper()
		if err := index.Add(object); err != nil {
			t.Fatal(err)
		}
	}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "podnas"}, Provisioner: provisioner.DefaultName}
	add(classes.Informer().GetIndexer(), class)
	pending := func(name string) *v1.PersistentVolumeClaim {
		c := fixture.Claim("1Mi")
		c.Name, c.Spec.StorageClassName = name, new("podnas")
		c.Annotations = map[string]string{storageProvisioner: provisioner.DefaultName}
		return c
	}
	bound := func(name, size string) *v1.PersistentVolumeClaim {
		c := pending(name)
		c.Spec.VolumeName, c.Status.Phase = "pvc-"+name, v1.ClaimBound
		c.Status.Capacity = fixture.Claim(size).Spec.Resources.Requests
		return c
	}
	want := func(when string, want ...string) {
		t.Helper()
		var got []string
		for _, r := range u.look() {
			if r.Status != doctor.OK {
				got = append(got, r.Check+": "+r.Says)
			}
			if (r.Status == doctor.OK) != (r.Fix == "") {
				t.Errorf("%+v", r)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	want("at first")

	for _, name := range []string{"bound", "copied", "deleted", "mended", "renamed", "theirs"} {
		add(claims, pending(name))
		provision.Update("ns/"+name, errors.New("no room"))
	}
	provision.Update("ns/copied", fmt.Errorf("wait: %w", &volume.CopyingError{Files: 1}))
	add(claims, bound("raised", "1Ki"))
	add(claims, bound("enough", "1Ki"))
	expand.Update("ns/raised", errors.New("no room"))
	expand.Update("ns/enough", errors.New("no room"))
	add(volumes, &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-stuck"}})
	provision.Update("pvc-stuck", errors.New("busy"))
	const gets, raises = ": it gets no volume: no room", ": its volume can't be expanded: no room"
	want("all", "claim ns/bound"+gets, "claim ns/deleted"+gets, "claim ns/enough"+raises, "claim ns/mended"+gets, "claim ns/raised"+raises,
		"claim ns/renamed"+gets, "claim ns/theirs"+gets, "volume pvc-stuck: it can't be deleted: busy")

	add(claims, bound("bound", "1Mi"))
	if err := errors.Join(claims.Delete(pending("deleted")), volumes.Delete(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-stuck"}})); err != nil {
		t.Fatal(err)
	}
	provision.Update("ns/mended", nil)
	theirs := pending("theirs") // made again, with another class
	theirs.Annotations[storageProvisioner] = "example.com/other"
	add(claims, theirs)
	ending := pending("renamed")
	ending.DeletionTimestamp = &metav1.Time{}
	add(claims, ending)
	add(claims, bound("enough", "1Mi"))
	want("later", "claim ns/raised"+raises)

	expand.Update("ns/raised", nil)
	want("when all is mended")

	// Whose class is gone the library asks nobody about.
	if err := classes.Informer().GetIndexer().Delete(class); err != nil {
		t.Fatal(err)
	}
	want("without the class", "claim ns/copied: it gets no volume: its StorageClass podnas is not there", "claim ns/mended: it gets no volume: its StorageClass podnas is not there")
}

// What the library asks for is in the list until it is done.
func TestRefusalIsInTheList(t *testing.T) {
	p := newProvisioner(t)
	logging := &loggingProvisioner{Provisioner: p, client: fake.NewClientset(), permission: &permission{client: fake.NewClientset()}}
	options := library.ProvisionOptions{StorageClass: class(), PVName: "pvc-1", PVC: fixture.Claim("1Ei")}
	if _, _, err := logging.Provision(t.Context(), options); err == nil {
		t.Fatal("1Ei was provisioned")
	}
	if wrong := logging.problems.Current(); len(wrong) != 1 || wrong["ns/data"] == nil {
		t.Errorf("wrong: %v", wrong)
	}
	options.PVC = fixture.Claim("1Mi")
	if _, _, err := logging.Provision(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	_ = logging.Delete(t.Context(), &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}) // is another disk's
	if wrong := logging.problems.Current(); len(wrong) != 0 {
		t.Errorf("still wrong: %v", wrong)
	}
}
