package snapshots

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/tools/record"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner/internal/fixture"
)

// A VolumeSnapshot that is deleted while claims show it waits for them, says so once for each, and goes.
func TestDeletionOfAViewedSnapshot(t *testing.T) {
	root := t.TempDir()
	store, err := volume.Open(volume.Config{Root: root, Exports: fixture.NoExports{}, Snapshots: fixture.Snapshots{Root: root}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Create(t.Context(), volume.Spec{Name: "v", Size: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.CreateSnapshot(t.Context(), "v", "uid"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		spec := volume.Spec{Name: name, Size: 1 << 20, Source: "v", SourceSnapshot: "uid", View: true, Claim: &volume.Claim{Namespace: "ns", Name: "read-" + name}}
		if _, err := store.Create(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}

	handle := store.Identity() + "/v/uid"
	now := metav1.Now()
	ct := &content{
		TypeMeta: metav1.TypeMeta{APIVersion: groupVersion.String(), Kind: contentKind},
		ObjectMeta: metav1.ObjectMeta{
			Name: contentName("uid"), Finalizers: []string{contentFinalizer}, DeletionTimestamp: &now, Annotations: map[string]string{beingDeleted: "yes"},
		},
		Spec: contentSpec{
			Driver: "podnas.io/nfs", DeletionPolicy: policyDelete, Source: contentSource{VolumeHandle: store.Identity() + "/v"},
			Snapshot: v1.ObjectReference{Namespace: "ns", Name: "before", UID: "uid"},
		},
		Status: &contentStatus{SnapshotHandle: &handle},
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(ct)
	if err != nil {
		t.Fatal(err)
	}
	lists := map[schema.GroupVersionResource]string{classResource: "VolumeSnapshotClassList", snapshotResource: "VolumeSnapshotList", contentResource: "VolumeSnapshotContentList"}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, &unstructured.Unstructured{Object: object})
	events := record.NewFakeRecorder(100)
	c := &Controller{Client: client, Store: store, Driver: "podnas.io/nfs", Events: events, SureOfDisk: fixture.OwnDisk, Log: slog.New(slog.DiscardHandler)}
	s := c.newSession()
	c.set(s)
	vs := &volumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "before", UID: "uid"}}
	if err := errors.Join(s.contents.GetStore().Add(ct), s.snapshots.GetStore().Add(vs)); err != nil {
		t.Fatal(err)
	}
	current := func() *content {
		t.Helper()
		found, err := c.getContent(t.Context(), ct.Name)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for _, name := range []string{"a", "b"} {
		for range 3 {
			if err := s.syncContent(t.Context(), ct.Name); !errors.As(err, new(waiting)) {
				t.Fatalf("while claim read-%s shows it: %v", name, err)
			}
		}
		told := current()
		if told.Status == nil || told.Status.Error == nil || !strings.Contains(told.Status.Error.Message, "claim ns/read-"+name) || !slices.Contains(told.Finalizers, contentFinalizer) {
			t.Errorf("the content is %+v", told)
		}
		if len(events.Events) != 2 {
			t.Errorf("%d events, want one on each object", len(events.Events))
		}
		for len(events.Events) > 0 {
			if said := <-events.Events; !strings.Contains(said, "claim ns/read-"+name) {
				t.Errorf("the event is %q", said)
			}
		}
		if results := c.Findings(); len(results) == 0 || results[0].Status != doctor.Warning || !strings.Contains(results[0].Says, "can't be yet") {
			t.Errorf("findings: %+v", results)
		}
		if err := store.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.syncContent(t.Context(), ct.Name); err != nil {
		t.Fatal(err)
	}
	if left := current().Finalizers; len(left) > 0 {
		t.Errorf("the content has the finalizers %v", left)
	}
	if _, err := store.GetSnapshot("v", "uid"); !errors.Is(err, volume.ErrNoSnapshot) {
		t.Errorf("the snapshot: %v", err)
	}
}
