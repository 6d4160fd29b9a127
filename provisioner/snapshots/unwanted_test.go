package snapshots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/internal/fixture"
)

// late takes snapshots whose moment comes when cut is closed. full has the next moment come, and
// then, once more, its snapshot fail.
type late struct {
	fixture.Snapshots

	cut, full chan struct{}
}

func (l late) TakeSnapshot(ctx context.Context, v volume.Volume, work *os.File, last *volume.EarlierSnapshot, p *volume.SnapshotProgress) (volume.SnapshotTaken, error) {
	select {
	case <-l.full:
		p.Cut.Store(time.Now().UnixNano())
		select {
		case <-l.full:
		case <-ctx.Done():
		}
		return volume.SnapshotTaken{}, fmt.Errorf("share its blocks: %w", syscall.ENOSPC)
	case <-l.cut:
		return l.Snapshots.TakeSnapshot(ctx, v, work, last, p)
	case <-ctx.Done():
		return volume.SnapshotTaken{}, context.Cause(ctx)
	}
}

const (
	testDriver = "podnas.io/nfs"
	testUID    = types.UID("0f7c6c5e-8a8f-4dbb-9bd6-1c3f6f9d7a10")
)

// cluster is a session over a fake API server, with the claim "data" of the volume "v", and a class.
type cluster struct {
	*session
	*testing.T

	store     *volume.Store
	cut, full chan struct{} // see late
	events    *record.FakeRecorder
}

// newCluster opens a disk. What was there is as it is after a restart.
func newCluster(t *testing.T, root string) *cluster {
	t.Helper()
	c := &cluster{T: t, cut: make(chan struct{}), full: make(chan struct{}), events: record.NewFakeRecorder(100)}
	var err error
	c.store, err = volume.Open(volume.Config{Root: root, Exports: fixture.NoExports{}, Snapshots: late{fixture.Snapshots{Root: root}, c.cut, c.full}, Log: slog.New(slog.DiscardHandler)})
	c.must(err)
	t.Cleanup(func() { _ = c.store.Close() }) // some tests have closed it
	if _, err := c.store.Get("v"); err != nil {
		_, err := c.store.Create(t.Context(), volume.Spec{Name: "v", Size: 1 << 20})
		c.must(err)
	}
	claims, volumes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "claim"}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: "v"}}
	claim.Status.Phase = v1.ClaimBound
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", Annotations: map[string]string{provisioner.InstanceAnnotation: c.store.Identity()}}}
	pv.Spec.ClaimRef = &v1.ObjectReference{UID: "claim"}
	c.must(errors.Join(claims.Add(claim), volumes.Add(pv)))
	lists := map[schema.GroupVersionResource]string{classResource: "VolumeSnapshotClassList", snapshotResource: "VolumeSnapshotList", contentResource: "VolumeSnapshotContentList"}
	c.session = (&Controller{
		Client: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists), Store: c.store, Driver: testDriver, Events: c.events, SureOfDisk: fixture.OwnDisk,
		Log: slog.New(slog.DiscardHandler), Claims: corelisters.NewPersistentVolumeClaimLister(claims), Volumes: corelisters.NewPersistentVolumeLister(volumes),
	}).newSession()
	c.set(c.session)
	c.must(c.classes.GetStore().Add(&class{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Driver: testDriver, DeletionPolicy: policyDelete}))
	return c
}

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// ask makes a VolumeSnapshot of the claim with a class, "": none.
func (c *cluster) ask(claim, class string) (vs *volumeSnapshot, k key) {
	c.Helper()
	vs = &volumeSnapshot{
		TypeMeta:   metav1.TypeMeta{APIVersion: groupVersion.String(), Kind: Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "wanted", UID: testUID},
	}
	vs.Spec.Source.Claim = claim
	if class != "" {
		vs.Spec.Class = &class
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(vs)
	c.must(err)
	_, err = c.Client.Resource(snapshotResource).Namespace("ns").Create(c.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	c.must(err)
	c.must(c.snapshots.GetStore().Add(vs))
	k = vs.key()
	return vs, k
}

// forget deletes the VolumeSnapshot.
func (c *cluster) forget(vs *volumeSnapshot) {
	c.Helper()
	c.must(c.Client.Resource(snapshotResource).Namespace("ns").Delete(c.Context(), vs.Name, metav1.DeleteOptions{}))
	c.must(c.snapshots.GetStore().Delete(vs))
}

// see has the cache know the content.
func (c *cluster) see() *content {
	c.Helper()
	ct, err := c.getContent(c.Context(), contentName(testUID))
	c.must(err)
	c.must(c.contents.GetStore().Add(ct))
	return ct
}

// taken takes the snapshot of a VolumeSnapshot, and returns its content.
func (c *cluster) taken() *content {
	c.Helper()
	close(c.cut)
	_, k := c.ask("data", "class")
	c.must(c.until(k))
	ct := c.see()
	c.settle()
	return ct
}

// settle waits for the end of all takings.
func (c *cluster) settle() {
	for len(c.store.SnapshotsUnderWay()) > 0 {
		time.Sleep(time.Millisecond)
	}
}

// until works on a key until that is no wait.
func (c *cluster) until(k key) error {
	c.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		err := c.syncContent(c.Context(), k.name)
		if k.namespace != "" {
			err = c.syncSnapshot(c.Context(), k)
		}
		if !errors.As(err, new(waiting)) || time.Since(began) > 30*time.Second {
			return err
		}
	}
}

// has checks whether the snapshot is there.
func (c *cluster) has(want bool) {
	c.Helper()
	_, err := c.store.GetSnapshot("v", string(testUID))
	taking := errors.As(err, new(*volume.TakingError))
	if want && err != nil && !taking || !want && !errors.Is(err, volume.ErrNoSnapshot) {
		c.Errorf("the snapshot: %v, want it: %v", err, want)
	}
}

// A VolumeSnapshot that is deleted before the moment of its snapshot leaves nothing.
func TestDeletedBeforeItsMoment(t *testing.T) {
	for name, remove := range map[string]func(*cluster, *volumeSnapshot){
		"gone": (*cluster).forget,
		"waits for finalizers": func(c *cluster, vs *volumeSnapshot) {
			now := metav1.Now()
			vs.DeletionTimestamp = &now
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, t.TempDir())
			vs, k := c.ask("data", "class")
			if err := c.syncSnapshot(t.Context(), k); !errors.As(err, new(waiting)) {
				t.Fatalf("before the moment: %v", err)
			}
			c.must(c.endUnwanted(t.Context()))
			c.has(true)
			remove(c, vs)
			c.must(c.syncSnapshot(t.Context(), k))
			c.has(false)
			if under := c.store.SnapshotsUnderWay(); len(under) > 0 {
				t.Errorf("%+v is being taken", under)
			}
		})
	}
}

// The same if another one has its name before podnas looks at the first one again, as with kubectl replace --force.
func TestReplaced(t *testing.T) {
	for name, hear := range map[string]func(c *cluster, first, second *volumeSnapshot){
		"two events": func(c *cluster, first, second *volumeSnapshot) {
			c.enqueue(first)
			c.enqueue(second)
		},
		"a new list": func(c *cluster, first, second *volumeSnapshot) { c.enqueueChanged(first, second) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, t.TempDir())
			close(c.cut)
			first, k := c.ask("data", "class")
			if err := c.syncSnapshot(t.Context(), k); !errors.As(err, new(waiting)) {
				c.must(err)
			}
			c.settle()
			c.forget(first)
			second := *first
			second.UID = "another"
			c.must(c.snapshots.GetStore().Add(&second))
			hear(c, first, &second)
			var working sync.WaitGroup
			working.Go(func() { c.work(t.Context()) })
			for began := time.Now(); len(c.store.Unclaimed()) != 1 || c.store.Unclaimed()[0].Name != string(second.UID); time.Sleep(time.Millisecond) {
				if time.Since(began) > 10*time.Second {
					t.Errorf("unclaimed are %v, want that of the second one", c.store.Unclaimed())
					break
				}
			}
			c.queue.ShutDown()
			working.Wait()
			c.has(false)
		})
	}
}

// The same while its content is made. With the policy Retain both stay, as they do when podnas hears of it later.
func TestDeletedWhileItsContentIsMade(t *testing.T) {
	for _, policy := range []string{policyDelete, "Retain"} {
		t.Run(policy, func(t *testing.T) {
			c := newCluster(t, t.TempDir())
			c.must(c.classes.GetStore().Update(&class{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Driver: testDriver, DeletionPolicy: policy}))
			vs, k := c.ask("data", "class")
			if err := c.syncSnapshot(t.Context(), k); !errors.As(err, new(waiting)) {
				t.Fatalf("before the moment: %v", err)
			}
			c.must(c.Client.Resource(snapshotResource).Namespace("ns").Delete(t.Context(), vs.Name, metav1.DeleteOptions{})) // the cache does not know yet
			close(c.cut)
			if err := ignoreNotFound(c.until(k)); err != nil {
				t.Fatal(err)
			}
			c.settle()
			if _, err := c.getContent(t.Context(), contentName(testUID)); (err == nil) != (policy != policyDelete) {
				t.Errorf("the content: %v", err)
			}
			c.must(c.snapshots.GetStore().Delete(vs))
			c.must(c.endUnwanted(t.Context()))
			c.has(policy != policyDelete)
			if left := c.store.Unclaimed(); len(left) > 0 {
				t.Errorf("nobody has claimed %v", left)
			}
		})
	}
}

// The same when it is complete, and podnas ends before there is a content.
func TestDeletedWhilePodnasIsAway(t *testing.T) {
	for _, tt := range []struct {
		name    string
		content bool // podnas made it before it ended
		gone    bool // the VolumeSnapshot
		stays   bool
	}{
		{"gone", false, true, false},
		{"there", false, false, true},
		{"gone, with a content", true, true, false},
		{"there, with a content", true, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			c := newCluster(t, root)
			close(c.cut)
			_, err := c.store.StartUnclaimed(t.Context(), "v", string(testUID))
			c.must(err)
			for len(c.store.SnapshotsUnderWay()) > 0 {
				time.Sleep(time.Millisecond)
			}
			c.must(c.store.Close())

			c = newCluster(t, root)
			c.has(true)
			vs, k := c.ask("data", "class")
			if tt.content {
				object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&content{
					TypeMeta:   metav1.TypeMeta{APIVersion: groupVersion.String(), Kind: contentKind},
					ObjectMeta: metav1.ObjectMeta{Name: contentName(testUID), Finalizers: []string{contentFinalizer}},
					Spec: contentSpec{
						Driver: testDriver, DeletionPolicy: policyDelete, Source: contentSource{VolumeHandle: c.volumeHandle("v")},
						Snapshot: v1.ObjectReference{Namespace: "ns", Name: "wanted", UID: testUID},
					},
				})
				c.must(err)
				_, err = c.Client.Resource(contentResource).Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
				c.must(err)
			}
			if tt.gone {
				c.forget(vs)
			}
			var ct *content
			if tt.content {
				ct = c.see()
			}
			c.must(c.endUnwanted(t.Context()))
			if tt.content {
				if _, err := c.getContent(t.Context(), ct.Name); (err != nil) != tt.gone {
					t.Errorf("the content: %v", err)
				}
				if tt.gone { // the API server has it go when podnas lets it
					now := metav1.Now()
					ct.DeletionTimestamp, ct.Annotations = &now, map[string]string{beingDeleted: "yes"}
					c.must(c.syncContent(t.Context(), ct.Name))
				}
			} else {
				c.must(c.until(k))
			}
			c.has(tt.stays)
			if tt.stays {
				vs.Status.BoundContent = contentName(testUID)
				c.must(c.syncSnapshot(t.Context(), k))
			}
			if left := c.store.Unclaimed(); len(left) > 0 {
				t.Errorf("nobody has claimed %v", left)
			}
		})
	}
}

// What was claimed once is never collected: a cluster that was restored has objects of another time.
func TestClaimedStays(t *testing.T) {
	root := t.TempDir()
	c := newCluster(t, root)
	close(c.cut)
	vs, k := c.ask("data", "class")
	c.must(c.until(k))
	ct := c.see()
	c.must(c.until(key{name: ct.Name}))
	c.settle()
	vs.Status.BoundContent = ct.Name
	c.must(c.syncSnapshot(t.Context(), k))
	c.forget(vs)
	c.must(c.contents.GetStore().Delete(ct))
	c.must(c.Client.Resource(contentResource).Delete(t.Context(), ct.Name, metav1.DeleteOptions{}))
	c.must(c.syncSnapshot(t.Context(), k))
	c.has(true)
	c.must(c.store.Close())
	c = newCluster(t, root)
	c.must(c.endUnwanted(t.Context()))
	c.has(true)
}

// podnas ends while a snapshot is taken. If nobody knew its moment, it is taken again; else the moment would be another one.
func TestEndedWhileTaken(t *testing.T) {
	for _, told := range []bool{false, true} {
		c := newCluster(t, t.TempDir())
		ct := c.taken()
		c.must(c.store.DeleteSnapshot(t.Context(), "v", string(testUID))) // as the end of podnas leaves nothing
		if !told {
			ct.Status = nil
		} else {
			no := false
			ct.Status.Ready = &no
		}
		err := c.until(key{name: ct.Name})
		c.has(!told)
		if !told {
			c.must(err)
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "make another one") {
			t.Errorf("the error is %v", err)
		}
		select {
		case said := <-c.events.Events:
			if !strings.Contains(said, "make another one") {
				t.Errorf("the event is %q", said)
			}
		default:
			t.Error("there is no event")
		}
	}
}

// A disk becomes full after the moment of a snapshot was told. The reason stays, whatever is tried, or taken, or ends after it, and no
// snapshot of another moment is taken.
func TestFullAfterItsMoment(t *testing.T) {
	root := t.TempDir()
	c := newCluster(t, root)
	_, k := c.ask("data", "class")
	if err := c.syncSnapshot(t.Context(), k); !errors.As(err, new(waiting)) {
		t.Fatalf("before the moment: %v", err)
	}
	c.full <- struct{}{}
	c.must(c.until(k))
	ct := c.see()
	c.full <- struct{}{}
	c.settle()
	close(c.cut)
	check := func(when string) {
		t.Helper()
		err := c.until(key{name: ct.Name})
		if err == nil || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), "make another one") {
			t.Errorf("%s: the error is %v", when, err)
		}
	}
	check("at first")
	ct = c.see()
	check("again")
	_, err := c.store.CreateSnapshot(t.Context(), "v", "another")
	c.must(err)
	check("after another snapshot")
	c.has(false)
	if now := c.see(); now.Status.Error == nil || *now.Status.Error != *ct.Status.Error {
		t.Errorf("the status had %+v, and has %+v", ct.Status.Error, now.Status.Error)
	}
	if n := len(c.events.Events); n != 1 {
		t.Errorf("%d events", n)
	}
	c.must(c.store.Close())
	c = newCluster(t, root)
	c.must(c.contents.GetStore().Add(ct))
	check("after a restart")
	c.has(false)
}

// A VolumeSnapshot that may be another driver's is no failure of podnas.
func TestForeignVolumeSnapshot(t *testing.T) {
	c := newCluster(t, t.TempDir())
	close(c.cut)
	vs, k := c.ask("missing", "")
	c.workOn(t.Context(), k)
	if results := c.Findings(); len(results) > 0 {
		t.Errorf("findings: %+v", results)
	}
	if n := c.queue.NumRequeues(k); n != 1 {
		t.Errorf("it is looked at again: %d", n)
	}
	vs.Spec.Class = new(string)
	*vs.Spec.Class = "class" // which is podnas's
	c.workOn(t.Context(), k)
	if results := c.Findings(); len(results) != 1 {
		t.Errorf("with podnas's class: %+v", results)
	}
}
