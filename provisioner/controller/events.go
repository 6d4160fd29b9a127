package controller

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

// newEvents starts an event recorder, until ctx ends. It limits itself: it counts
// repeated events, and drops events of an object that has too many.
func newEvents(ctx context.Context, client kubernetes.Interface, name string) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: client.CoreV1().Events(metav1.NamespaceAll)})
	return broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: name})
}

// pod is podnas's own pod. Events on it inform its administrator. Outside of a cluster
// it has no name and gets no events; the log has the same messages.
type pod struct {
	reference v1.ObjectReference
	events    record.EventRecorder
}

// ownPod returns podnas's own pod. The caller knows its name and UID, as podnas needs no right to see pods.
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
