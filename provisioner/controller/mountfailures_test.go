package controller

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/podnas/podnas/provisioner"
)

// kubeletSays is how kubelet tells of a mount that failed.
func kubeletSays(volume, output string) string {
	return `MountVolume.SetUp failed for volume "` + volume + `" : mount failed: exit status 32
Mounting command: mount
Mounting arguments: -t nfs -o hard,nolock 10.96.0.20:/` + volume + ` /var/lib/kubelet/pods/0/volumes/kubernetes.io~nfs/` + volume + `
Output: ` + output
}

// What mount(8), mount.nfs and busybox say, and what the claim is told.
func TestMountCauses(t *testing.T) {
	for _, tt := range []struct{ says, reason, advice string }{
		{"mount: /var/lib/x: bad option; for several filesystems (e.g. nfs, cifs) you might need a /sbin/mount.<type> helper program.", "NodeWithoutMountNFS", "nfs-common"},
		{"sh: mount.nfs: not found", "NodeWithoutMountNFS", "nfs-utils"},
		{"mount: wrong fs type, bad option, bad superblock on 10.96.0.20:/v, missing codepage or helper program, or other error\n(for several filesystems (e.g. nfs, cifs) you might\nneed a /sbin/mount.<type> helper program)", "NodeWithoutMountNFS", ""},
		{"mount: unknown filesystem type 'nfs'", "NodeWithoutNFS", "modprobe"},
		{"mount.nfs: No such device", "NodeWithoutNFS", "modprobe"},
		{"mount.nfs: access denied by server while mounting 10.96.0.20:/v", "MountRefused", "allowedClients"},
		{"mount.nfs: mounting 10.96.0.20:/v failed, reason given by server: No such file or directory", "VolumeGone", "podnas doctor"},
		{"mount.nfs: Stale file handle", "VolumeGone", "podnas doctor"},
		{"mount.nfs: Connection refused", "ServerRefusedMount", "kube-proxy"},
		{"mount: mounting 10.96.0.20:/v on /x failed: Connection refused", "ServerRefusedMount", ""},
		{"mount.nfs: No route to host for 10.96.0.20:/v on /x", "ServerRefusedMount", ""},
		{"mount.nfs: Connection timed out", "ServerNotReached", "NetworkPolicy"},
		{"mount.nfs: requested NFS version or transport protocol is not supported", "NFSVersionNotSupported", "nfsvers=4.1"},
		{"mount.nfs: Protocol not supported", "NFSVersionNotSupported", "modprobe"},
		{"mount.nfs: rpc.statd is not running but is required for remote locking.\nmount.nfs: Either use '-o nolock' to keep locks local, or start statd.", "MountOptionsWrong", ""},
		{"mount.nfs: an incorrect mount option was specified", "MountOptionsWrong", "nfsvers=4.1"},
		{"mount.nfs: something that nobody has heard of", "", ""},
	} {
		c, ok := mountCause(kubeletSays("v", tt.says), false)
		if ok != (tt.reason != "") || c.reason != tt.reason || !strings.Contains(c.says, tt.advice) {
			t.Errorf("%q: %+v, want %s with %q", tt.says, c, tt.reason, tt.advice)
		}
	}
	for _, says := range []string{"mount.nfs: Connection refused", "mount.nfs: Connection timed out"} {
		if c, ok := mountCause(kubeletSays("v", says), true); !ok || c.reason != "ServerWasAway" || !strings.Contains(c.says, "retries by itself") {
			t.Errorf("before podnas was started, %q: %+v", says, c)
		}
	}
}

// One event for each claim, node and cause, on the claim and on no other's.
func TestMountFailures(t *testing.T) {
	volumes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, identity := range map[string]string{"ours": "me", "theirs": "other", "unclaimed": "me"} {
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisioner.InstanceAnnotation: identity}}}
		if name != "unclaimed" {
			pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: "claim", UID: "uid"}
		}
		if err := volumes.Add(pv); err != nil {
			t.Fatal(err)
		}
	}
	events := record.NewFakeRecorder(10)
	now := time.Now()
	m := &mountFailures{
		volumes: corelisters.NewPersistentVolumeLister(volumes), identity: "me", events: events,
		started: now.Add(-time.Hour), log: slog.New(slog.DiscardHandler), told: map[mountFailure]time.Time{},
	}
	const helper, refused = "you might need a /sbin/mount.<type> helper program.", "mount.nfs: Connection refused"
	event := func(namespace, volume, node, output string, ago time.Duration) *v1.Event {
		return &v1.Event{
			InvolvedObject: v1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "pod"},
			Reason:         "FailedMount", Message: kubeletSays(volume, output),
			Source: v1.EventSource{Host: node}, LastTimestamp: metav1.NewTime(now.Add(-ago)),
		}
	}
	noVolume := event("ns", "ours", "a", helper, 0)
	noVolume.Message = "Unable to attach or mount volumes: unmounted volumes=[data]: timed out waiting for the condition"
	for _, tt := range []struct {
		name  string
		event *v1.Event
		after time.Duration
		want  string
	}{
		{"first", event("ns", "ours", "a", helper, 0), 0, "Warning NodeWithoutMountNFS Pod pod can't mount volume ours on node a: the node has no mount.nfs"},
		{"again", event("ns", "ours", "a", helper, 0), time.Minute, ""},
		{"another node", event("ns", "ours", "b", helper, 0), time.Minute, "Warning NodeWithoutMountNFS Pod pod can't mount volume ours on node b"},
		{"another cause", event("ns", "ours", "a", refused, 0), time.Minute, "Warning ServerRefusedMount"},
		{"still so", event("ns", "ours", "a", helper, -31*time.Minute), 31 * time.Minute, "Warning NodeWithoutMountNFS"},
		{"another disk's", event("ns", "theirs", "a", helper, 0), 0, ""},
		{"nobody's", event("ns", "unclaimed", "a", helper, 0), 0, ""},
		{"no volume of that name", event("ns", "pvc-x", "a", helper, 0), 0, ""},
		{"told in another namespace", event("elsewhere", "ours", "c", helper, 0), 0, ""},
		{"long ago", event("ns", "ours", "d", helper, time.Hour), 0, ""},
		{"nothing to say", event("ns", "ours", "e", "exit status 1", 0), 0, ""},
		{"no volume named", noVolume, 0, ""},
	} {
		m.look(tt.event, now.Add(tt.after))
		got := ""
		select {
		case got = <-events.Events:
		default:
		}
		if tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if len(m.told) > 2 {
		t.Errorf("it remembers %v, also what was told long ago", m.told)
	}
}
