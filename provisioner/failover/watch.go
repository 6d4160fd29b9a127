package failover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// period is the time between two looks.
const period = 500 * time.Millisecond

// watch tells what the next pod waits for, until one is ready.
func (f *Failover) watch(ctx context.Context, began time.Time) error {
	said := ""
	for {
		pods, says := f.waitsFor(ctx)
		if says == "" {
			f.Say("podnas serves again, on %s, after %s", pods.serves.Spec.NodeName, time.Since(began).Round(100*time.Millisecond))
			f.tellStandbys(ctx, pods)
			f.tellTaint(ctx)
			return nil
		}
		if says != said && ctx.Err() == nil {
			f.Say("%5.1f s: %s", time.Since(began).Seconds(), says)
			said = says
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("podnas does not serve yet: %s\n  to do: call this again, which goes on; '%s' says more: %w", said, f.doctor(), context.Cause(ctx))
		case <-time.After(period):
		}
	}
}

// tellTaint says what is left to do with the node.
func (f *Failover) tellTaint(ctx context.Context) {
	node, err := f.Client.CoreV1().Nodes().Get(ctx, f.Node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		f.Say("There is no node %s any more: nothing is left to do", f.Node)
	case err != nil || Ours(node):
		f.Say("%s keeps its taint. When it is back, and was restarted: %s", f.Node, over(f.Node))
	case taintOf(node) != nil:
		f.Say("%s keeps the taint that somebody else has set. When it is back, and was restarted, and the taint is still there: %s", f.Node, byHand(f.Node))
	default:
		f.Say("%s has no taint any more: nothing is left to do", f.Node)
	}
}

// tellStandbys says what the standbys wait for, which nobody has to wait for.
func (f *Failover) tellStandbys(ctx context.Context, pods *pods) {
	for _, pod := range pods.there {
		switch {
		case pod == pods.serves:
		case isReady(pod):
			f.Say("Pod %s on %s is the standby", pod.Name, pod.Spec.NodeName)
		default:
			f.Say("Pod %s will be the standby: %s", pod.Name, f.podWaits(ctx, pods, pod))
		}
	}
}

// waitsFor says what podnas waits for; nothing, if one of its pods serves.
func (f *Failover) waitsFor(ctx context.Context) (pods *pods, says string) {
	pods, err := f.pods(ctx)
	if err != nil {
		return nil, fmt.Sprintf("the API server does not answer: %v", err)
	}
	pod := pods.of(f.Node)
	switch {
	case pod == nil:
		return pods, "the StatefulSet's controller has not made the next pod yet"
	case pod.Spec.NodeName == f.Node && pod.UID == f.was:
		return pods, fmt.Sprintf("the pod on %s is not gone yet", f.Node)
	case pod.Spec.NodeName == f.Node:
		return pods, fmt.Sprintf("the next pod, %s, was put on %s again: it tolerates the taints there, which 'kubectl -n %s get pod %[1]s -o yaml' shows", pod.Name, f.Node, f.Namespace)
	case pods.serves != nil:
		return pods, ""
	case len(pods.lost) > 0:
		return pods, f.deadToo(pods.lost[0])
	case f.shared && slices.ContainsFunc(pods.there, isReady):
		return pods, "no standby has taken over yet"
	}
	return pods, f.podWaits(ctx, pods, pod)
}

// podWaits says what a pod waits for that is not ready.
func (f *Failover) podWaits(ctx context.Context, pods *pods, pod *v1.Pod) string {
	if pod.Spec.NodeName == "" {
		for i := range pod.Status.Conditions {
			if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Message != "" {
				return "the next pod waits for a node: " + c.Message
			}
		}
		return "the next pod waits for a node"
	}
	if slices.Contains(pods.lost, pod) {
		return f.deadToo(pod)
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch {
		case c.State.Running != nil && !c.Ready:
			return fmt.Sprintf("it runs on %s, and is not ready yet", pod.Spec.NodeName)
		case c.State.Waiting != nil && c.State.Waiting.Reason != "ContainerCreating" && c.State.Waiting.Reason != "PodInitializing":
			return strings.TrimSpace(fmt.Sprintf("on %s: %s %s", pod.Spec.NodeName, c.State.Waiting.Reason, c.State.Waiting.Message))
		}
	}
	return f.starts(ctx, pod)
}

// starts says what a pod that has a node waits for: its disk, mostly.
func (f *Failover) starts(ctx context.Context, pod *v1.Pod) string {
	claims := map[string]bool{}
	for i := range pod.Spec.Volumes {
		if c := pod.Spec.Volumes[i].PersistentVolumeClaim; c != nil {
			if claim, err := f.Client.CoreV1().PersistentVolumeClaims(f.Namespace).Get(ctx, c.ClaimName, metav1.GetOptions{}); err == nil {
				claims[claim.Spec.VolumeName] = true
			}
		}
	}
	// Without the right to see them, the rest is said.
	if attached, err := f.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{}); err == nil {
		for i := range attached.Items {
			a := &attached.Items[i]
			if a.Spec.Source.PersistentVolumeName == nil || !claims[*a.Spec.Source.PersistentVolumeName] {
				continue
			}
			switch {
			case a.Spec.NodeName == f.Node:
				return fmt.Sprintf("its disk is not detached from %s yet%s", f.Node, because(a.Status.DetachError))
			case !a.Status.Attached:
				return fmt.Sprintf("its disk is not attached to %s yet%s", a.Spec.NodeName, because(a.Status.AttachError))
			}
		}
	}
	events, err := f.Client.CoreV1().Events(f.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID)})
	if err == nil {
		for i := len(events.Items) - 1; i >= 0; i-- {
			if e := &events.Items[i]; e.Type == v1.EventTypeWarning {
				return fmt.Sprintf("its container starts on %s: %s", pod.Spec.NodeName, e.Message)
			}
		}
	}
	return fmt.Sprintf("its container starts on %s", pod.Spec.NodeName)
}

// because is what the driver says.
func because(err *storagev1.VolumeError) string {
	if err == nil {
		return ""
	}
	return ": " + err.Message
}
