package snapshots

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/podnas/podnas/provisioner"
)

// A content whose snapshot is on another disk is let go when that disk has been replaced, and no earlier: it may be back.
func TestContentOfALostDisk(t *testing.T) {
	for _, tt := range []struct {
		name    string
		newDisk bool
		disk    string // that of a PersistentVolume
		goes    bool
	}{
		{"a volume is on it", false, "lost", false},
		{"no volume is on it", false, "another", true},
		{"it has been replaced", true, "lost", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, t.TempDir())
			ct := c.taken()
			pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", Annotations: map[string]string{provisioner.InstanceAnnotation: tt.disk}}}
			volumes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			c.must(volumes.Add(pv))
			c.Volumes, c.NewDisk = corelisters.NewPersistentVolumeLister(volumes), tt.newDisk
			now, handle := metav1.Now(), "lost/v/"+snapshotName(testUID)
			ct.DeletionTimestamp, ct.Annotations, ct.Status.SnapshotHandle = &now, map[string]string{beingDeleted: "yes"}, &handle
			if err := c.syncContent(t.Context(), ct.Name); (err == nil) != tt.goes {
				t.Errorf("it ends with %v", err)
			}
			left, err := c.getContent(t.Context(), ct.Name)
			c.must(err)
			if slices.Contains(left.Finalizers, contentFinalizer) == tt.goes {
				t.Errorf("the content is %+v", left)
			}
			c.has(true) // this disk's of the same name
		})
	}
}
