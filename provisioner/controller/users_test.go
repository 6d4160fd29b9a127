package controller

import (
	"log/slog"
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/podnas/podnas/provisioner"
)

// Which pods have a volume mounted. test/cluster asks a real API server for them.
func TestUsersOf(t *testing.T) {
	bound := map[[2]string]string{{"ns", "data"}: "pvc-1", {"ns", "pod-scratch"}: "pvc-2", {"elsewhere", "data"}: "pvc-3"}
	claim := func(name string) v1.Volume {
		return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
	}
	scratch := v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}
	user := User{Namespace: "ns", Pod: "pod", Node: "node", Claim: "data", Volume: "pvc-1"}
	ending := user
	ending.Ending = true
	for _, tt := range []struct {
		name    string
		volumes []v1.Volume
		change  func(*v1.Pod)
		want    []User
	}{
		{"a claim", []v1.Volume{claim("data")}, nil, []User{user}},
		{"a claim of the pod's own", []v1.Volume{scratch}, nil, []User{{Namespace: "ns", Pod: "pod", Node: "node", Claim: "pod-scratch", Volume: "pvc-2"}}},
		{"two", []v1.Volume{claim("data"), scratch}, nil, []User{user, {Namespace: "ns", Pod: "pod", Node: "node", Claim: "pod-scratch", Volume: "pvc-2"}}},
		{"another's claim", []v1.Volume{claim("other")}, nil, nil},
		{"no claim", []v1.Volume{{Name: "v"}}, nil, nil},
		{"not on a node yet", []v1.Volume{claim("data")}, func(p *v1.Pod) { p.Spec.NodeName = "" }, nil},
		{"starting", []v1.Volume{claim("data")}, func(p *v1.Pod) { p.Status.Phase = v1.PodPending }, []User{user}},
		{"done", []v1.Volume{claim("data")}, func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }, nil},
		{"failed", []v1.Volume{claim("data")}, func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }, nil},
		{"ending", []v1.Volume{claim("data")}, func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, []User{ending}},
	} {
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"},
			Spec:       v1.PodSpec{NodeName: "node", Volumes: tt.volumes},
			Status:     v1.PodStatus{Phase: v1.PodRunning},
		}
		if tt.change != nil {
			tt.change(pod)
		}
		if got := usersOf(pod, bound); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// What the guard says is in use: claims that are bound to volumes of this disk.
func TestInUseDescribes(t *testing.T) {
	volumes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	u := newInUse(nil, "podnas", "me", corelisters.NewPersistentVolumeLister(volumes), slog.New(slog.DiscardHandler))
	add := func(name, identity string, phase v1.PersistentVolumePhase, claim string) {
		t.Helper()
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisioner.InstanceAnnotation: identity}}}
		pv.Status.Phase = phase
		if claim != "" {
			pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: claim}
		}
		if err := volumes.Add(pv); err != nil {
			t.Fatal(err)
		}
	}
	want := func(want string) {
		t.Helper()
		if got, err := u.describe(); err != nil || got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	want("")
	add("released", "me", v1.VolumeReleased, "gone")
	add("available", "me", v1.VolumeAvailable, "")
	add("theirs", "other", v1.VolumeBound, "x")
	want("")
	add("b", "me", v1.VolumeBound, "b")
	want("the claim ns/b")
	add("a", "me", v1.VolumeBound, "a")
	want("2 claims (ns/a, ns/b)")
	for _, name := range []string{"c", "d", "e", "f"} {
		add(name, "me", v1.VolumeBound, name)
	}
	want("6 claims (ns/a, ns/b, ns/c, ns/d, ns/e, ...)")
}
