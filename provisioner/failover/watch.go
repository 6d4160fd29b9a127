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

// watch tells what the next pod waits for, until it is ready.
func (f *Failover) watch(ctx context.Context, began time.Time) error {
	said := ""
	for {
		says, node := f.waitsFor(ctx)
		if node != "" {
			f.Say("podnas serves again, on %s, after %s", node, time.Since(began).Round(100*time.Millisecond))
			f.Say("%s keeps its taint. When it is back, and was restarted: podnas failover %[1]s --over", f.Node)
			return nil
		}
		if says != said && ctx.Err() == nil {
			f.Say("%5.1f s: %s", time.Since(began).Seconds(), says)
			said = says
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("podnas does not serve yet: %s\n  to do: call this again, which goes on; 'podnas doctor pod -n %s --name %s' says more: %w", said, f.Namespace, f.Name, context.Cause(ctx))
		case <-time.After(period):
		}
	}
}

// waitsFor says what podnas waits for, or where it serves.
func (f *Failover) waitsFor(ctx context.Context) (says, node string) {
	pod, err := f.Client.CoreV1().Pods(f.Namespace).Get(ctx, f.podName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "the StatefulSet's controller has not made the next pod yet", ""
	case err != nil:
		return fmt.Sprintf("the API server does not answer: %v", err), ""
	case pod.Spec.NodeName == f.Node:
		return fmt.Sprintf("the pod on %s is not gone yet", f.Node), ""
	case isReady(pod):
		return "", pod.Spec.NodeName
	case pod.Spec.NodeName == "":
		for i := range pod.Status.Conditions {
			if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Message != "" {
				return "the next pod waits for a node: " + c.Message, ""
			}
		}
		return "the next pod waits for a node", ""
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch {
		case c.State.Running != nil && !c.Ready:
			return fmt.Sprintf("it runs on %s, and is not ready yet", pod.Spec.NodeName), ""
		case c.State.Waiting != nil && c.State.Waiting.Reason != "ContainerCreating" && c.State.Waiting.Reason != "PodInitializing":
			return strings.TrimSpace(fmt.Sprintf("on %s: %s %s", pod.Spec.NodeName, c.State.Waiting.Reason, c.State.Waiting.Message)), ""
		}
	}
	return f.starts(ctx, pod), ""
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
