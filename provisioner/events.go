package provisioner

import (
	"context"
	"sync"

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

// pod is the one that podnas runs in, to tell its administrator something. The
// zero pod, outside of a cluster, tells nobody: the log has it too.
type pod struct {
	client kubernetes.Interface
	name   types.NamespacedName
	events record.EventRecorder

	mu    sync.Mutex
	found *v1.Pod
}

// warn puts an event on the pod.
func (p *pod) warn(ctx context.Context, reason, message string) {
	if p.name.Name == "" || p.name.Namespace == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found == nil {
		found, err := p.client.CoreV1().Pods(p.name.Namespace).Get(ctx, p.name.Name, metav1.GetOptions{})
		if err != nil {
			return // the log has what was to be said
		}
		p.found = found
	}
	p.events.Event(p.found, v1.EventTypeWarning, reason, message)
}
