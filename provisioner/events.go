package provisioner

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// newEvents starts what writes events, until ctx ends. It bounds itself: what is
// said again is counted, and who says too much is cut short.
func newEvents(ctx context.Context, client kubernetes.Interface, name string) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: client.CoreV1().Events(metav1.NamespaceAll)})
	return broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: name})
}

// pod is the one that podnas runs in, to tell its administrator something. One without
// a name, outside of a cluster, tells nobody: the log has it too.
type pod struct {
	reference v1.ObjectReference
	events    record.EventRecorder
}

// ownPod takes the pod's name and UID from its environment: nothing else of it is asked
// for, so podnas needs no right to see pods.
func ownPod(namespace, name, uid string, events record.EventRecorder) *pod {
	return &pod{
		reference: v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: types.UID(uid)},
		events:    events,
	}
}

// warn puts an event on the pod.
func (p *pod) warn(reason, message string) {
	if p.reference.Name != "" && p.reference.Namespace != "" {
		p.events.Event(&p.reference, v1.EventTypeWarning, reason, message)
	}
}
