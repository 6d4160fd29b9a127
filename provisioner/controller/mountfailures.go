package controller

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/podnas/podnas/provisioner"
)

const (
	// mountFailureAgain is when a persistent failure is reported again. kubelet
	// reports it every two minutes.
	mountFailureAgain = 30 * time.Minute
	// mountFailureOld is the age from which a failure is ignored: its event is from
	// before podnas was started.
	mountFailureOld = 10 * time.Minute
)

// mountFailures puts an event on a claim that says why a pod can't mount its volume,
// and what to do. kubelet's own event is on the pod, in the words of mount(8),
// without advice.
type mountFailures struct {
	volumes  corelisters.PersistentVolumeLister
	identity string // of the disk
	events   record.EventRecorder
	started  time.Time
	log      *slog.Logger

	mu sync.Mutex
	// +checklocks:mu
	told map[mountFailure]time.Time
}

// mountFailure identifies a failure, which is reported once.
type mountFailure struct {
	claim        types.UID
	node, reason string
}

// newMountFailureEvents returns an informer of kubelet's events on pods whose
// volumes can't be mounted. They are few, and expire after an hour.
func newMountFailureEvents(client kubernetes.Interface) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.SelectorFromSet(fields.Set{"involvedObject.kind": "Pod", "reason": "FailedMount"}).String()
	}))
}

// watch calls look for each of these events.
func (m *mountFailures) watch(events cache.SharedIndexInformer) error {
	look := func(object any) {
		if event, ok := object.(*v1.Event); ok {
			m.look(event, time.Now())
		}
	}
	_, err := events.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: look,
		UpdateFunc: func(before, after any) {
			old, isOld := before.(*v1.Event)
			event, ok := after.(*v1.Event)
			if ok && isOld && old.ResourceVersion != event.ResourceVersion {
				look(after)
			}
		},
	})
	return err
}

// failedVolume finds the PersistentVolume in kubelet's message.
var failedVolume = regexp.MustCompile(`for volume "([^"]+)"`)

// look reports the failure on the claim, if its volume is on this disk.
func (m *mountFailures) look(event *v1.Event, now time.Time) {
	seen := event.LastTimestamp.Time
	if seen.IsZero() {
		seen = event.EventTime.Time
	}
	found := failedVolume.FindStringSubmatch(event.Message)
	if found == nil || now.Sub(seen) > mountFailureOld {
		return
	}
	pv, err := m.volumes.Get(found[1])
	if err != nil || pv.Annotations[provisioner.InstanceAnnotation] != m.identity {
		return // not ours
	}
	claim := pv.Spec.ClaimRef
	// Somebody who may write events in one namespace must not cause events on claims
	// in another.
	if claim == nil || claim.Namespace != event.InvolvedObject.Namespace {
		return
	}
	cause, ok := mountCause(event.Message, seen.Before(m.started))
	if !ok {
		return
	}
	node := event.Source.Host
	if node == "" {
		node = event.ReportingInstance
	}
	if !m.first(mountFailure{claim: claim.UID, node: node, reason: cause.reason}, now) {
		return
	}
	message := fmt.Sprintf("Pod %s can't mount volume %s on node %s: %s", event.InvolvedObject.Name, pv.Name, node, cause.says)
	m.log.Warn("mount: "+cause.reason, "volume", pv.Name, "claim", claim.Namespace+"/"+claim.Name, "pod", event.InvolvedObject.Name, "node", node)
	m.events.Event(&v1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
	}, v1.EventTypeWarning, cause.reason, message)
}

// first reports whether a failure was not reported recently, and remembers that it
// now is.
func (m *mountFailures) first(f mountFailure, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if told, ok := m.told[f]; ok && now.Sub(told) < mountFailureAgain {
		return false
	}
	for old, told := range m.told {
		if now.Sub(told) >= mountFailureAgain {
			delete(m.told, old)
		}
	}
	m.told[f] = now
	return true
}

// cause is the reason why a mount failed.
type cause struct {
	reason string // of the event
	says   string // what is wrong, and what to do
	signs  []string
}

// mountCauses returns the causes that messages of mount.nfs and the kernel show.
// The first with a matching sign applies.
func mountCauses() []cause {
	return []cause{
		{
			"NodeWithoutMountNFS", "the node has no mount.nfs. Install nfs-common (Debian, Ubuntu), nfs-utils (Fedora, RHEL, Alpine) or nfs-client (SUSE) on it; kubelet then retries by itself",
			[]string{"need a /sbin/mount.<type> helper program", "mount.nfs: not found", `"mount.nfs": executable file not found`, "need a /sbin/mount.nfs helper"},
		},
		{
			"NodeWithoutNFS", "the node's kernel does not support NFS. Run modprobe -a nfs nfsv3 nfsv4 on it, or install the kernel package with all modules",
			[]string{"unknown filesystem type 'nfs'", "No such device"},
		},
		{
			"MountRefused", "the server refuses the node. The allowedClients of the volume's class must contain the node's address. With privilegedPorts, the default, nodes must mount without noresvport, and no proxy may change their source port; podnas's log says whether this is the cause",
			[]string{"access denied by server", "Permission denied"},
		},
		{
			"NFSVersionNotSupported", "the node's kernel or podnas does not support the version of NFS that the volume mounts with. Run modprobe -a nfsv3 nfsv4 on the node, or install the kernel package with all modules; podnas serves version 3 over TCP and, with the native engine, 4.1 and 4.2, which podnas doctor in its pod shows. Nodes without version 4.2 need volumes of a class with mountOptions: [nfsvers=4.1], those without either [nfsvers=3]",
			[]string{"Protocol not supported", "requested NFS version or transport protocol is not supported"},
		},
		{
			"MountOptionsWrong", "a mount option is invalid. Check mountOptions of the PersistentVolume, which come from its StorageClass. A node whose kernel or mount.nfs is too old for nfsvers=4.2, the default, needs volumes of a class with mountOptions: [nfsvers=4.1]",
			[]string{"an incorrect mount option was specified", "rpc.statd is not running", "Invalid argument"},
		},
		{
			"VolumeGone", "the server has no such volume. Run podnas doctor in podnas's pod to find out why",
			[]string{"No such file or directory", "Stale file handle"},
		},
		{
			"ServerRefusedMount", "nothing answers at the Service's address. Run podnas doctor in podnas's pod, and check that kube-proxy or its replacement runs on the node",
			[]string{"Connection refused", "No route to host", "Network is unreachable"},
		},
		{
			"ServerNotReached", "podnas runs, but the node got no answer. A NetworkPolicy in podnas's namespace, or a firewall between the nodes, drops the node's packets: allow its address",
			[]string{"Connection timed out", "mount.nfs: timed out", "timed out", "DeadlineExceeded", "Host is down"},
		},
	}
}

// mountCause finds the cause in kubelet's message. If the failure was before
// podnas was started, nothing needs to be done.
func mountCause(message string, before bool) (cause, bool) {
	for _, c := range mountCauses() {
		for _, sign := range c.signs {
			if !strings.Contains(message, sign) {
				continue
			}
			if before && (c.reason == "ServerRefusedMount" || c.reason == "ServerNotReached") {
				return cause{reason: "ServerWasAway", says: "podnas was not running then. It is now, and kubelet retries by itself"}, true
			}
			return c, true
		}
	}
	return cause{}, false
}
