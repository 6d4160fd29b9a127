package remote

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/podnas/podnas/provisioner/active"
)

// nameLabel is on every podnas's StatefulSet and pod; its value is the name of the installation.
const nameLabel = "app.kubernetes.io/name"

// Finder finds the pod of a podnas. A podnas is a StatefulSet with the label app.kubernetes.io/name and a
// container podnas: deploy/base makes one, the chart as many as there are releases.
type Finder struct {
	Client kubernetes.Interface
	// Namespace and Name of the StatefulSet; empty: any.
	Namespace, Name string
	// Likely are the namespaces to look in if the caller may not look in all.
	Likely []string
}

// NotRunningError says why a podnas can't run commands.
type NotRunningError struct {
	Namespace, Name string // of the StatefulSet
	State           string
}

func (e *NotRunningError) Error() string {
	return fmt.Sprintf("podnas %s/%s does not run: %s\n  to do: 'kubectl podnas doctor pod -n %[1]s --name %[2]s' says more, and what to do", e.Namespace, e.Name, e.State)
}

// Find returns the pod of the one podnas that is meant, whose container runs. Its error is a *NotRunningError if
// that does not.
func (f *Finder) Find(ctx context.Context) (*v1.Pod, error) {
	namespace, name := f.Namespace, f.Name
	if namespace == "" || name == "" {
		sets, err := f.installations(ctx)
		if err != nil {
			return nil, err
		}
		switch len(sets) {
		case 0:
			return nil, f.none()
		case 1:
			namespace, name = sets[0].Namespace, sets[0].Name
		default:
			return nil, several(sets)
		}
	}
	pod, err := f.podOf(ctx, namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &NotRunningError{namespace, name, f.withoutPod(ctx, namespace, name)}
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("you have no right to get and list pods in namespace %s; the ClusterRole view has it: %w", namespace, err)
	case err != nil:
		return nil, fmt.Errorf("ask the API server for the pods of podnas %s/%s: %w", namespace, name, err)
	case pod.Labels[active.RoleLabel] == active.RoleStandby:
		return nil, &NotRunningError{namespace, name, "none of its pods has the label " + active.RoleLabel + "=" + active.RoleActive + ": a standby takes over some 15 seconds after a death"}
	}
	if state := stateOf(pod); state != "" {
		return nil, &NotRunningError{namespace, name, state}
	}
	return pod, nil
}

// podOf returns the pod of a podnas. If that has a standby, it is the active one, or a standby if there is no active one. Pods are
// only listed for that, as who may get them need not have the right to list them.
func (f *Finder) podOf(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	first, err := f.Client.CoreV1().Pods(namespace).Get(ctx, name+"-0", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) || err == nil && first.Labels[active.RoleLabel] != active.RoleStandby {
		return first, err
	}
	pods, listErr := f.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: active.RoleLabel + "=" + active.RoleActive})
	if listErr != nil {
		if err == nil {
			err = listErr
		}
		return nil, err
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; active.IsPodOf(pod, name) {
			return pod, nil
		}
	}
	return first, err
}

// installations returns all podnas that the caller may mean.
func (f *Finder) installations(ctx context.Context) ([]appsv1.StatefulSet, error) {
	sets, err := f.list(ctx, f.Namespace)
	if !apierrors.IsForbidden(err) || f.Namespace != "" {
		return sets, f.unlisted(err)
	}
	for _, namespace := range slices.Compact(slices.Sorted(slices.Values(f.Likely))) {
		here, hereErr := f.list(ctx, namespace)
		if hereErr != nil && !apierrors.IsForbidden(hereErr) {
			return nil, f.unlisted(hereErr)
		}
		sets = append(sets, here...)
	}
	if len(sets) == 0 {
		return nil, f.unlisted(err)
	}
	return sets, nil
}

// unlisted explains why podnas can't be looked for.
func (f *Finder) unlisted(err error) error {
	switch {
	case err == nil:
		return nil
	case !apierrors.IsForbidden(err):
		return fmt.Errorf("look for podnas in the cluster: %w", err)
	case f.Namespace == "":
		return fmt.Errorf("you have no right to list StatefulSets in all namespaces, and in those where podnas is likely to be (%s) there is none that you may see. Say where it is: --namespace=NAMESPACE --name=NAME: %w", strings.Join(f.Likely, ", "), err)
	}
	return fmt.Errorf("you have no right to list StatefulSets in namespace %s, so add the name of podnas's: --name=podnas, if it was not changed: %w", f.Namespace, err)
}

// list returns the podnas in a namespace, or in all.
func (f *Finder) list(ctx context.Context, namespace string) ([]appsv1.StatefulSet, error) {
	all, err := f.Client.AppsV1().StatefulSets(namespace).List(ctx, metav1.ListOptions{LabelSelector: nameLabel})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all.Items, func(s appsv1.StatefulSet) bool {
		return f.Name != "" && s.Name != f.Name ||
			!slices.ContainsFunc(s.Spec.Template.Spec.Containers, func(c v1.Container) bool { return c.Name == active.Container })
	}), nil
}

func (f *Finder) none() error {
	where := "in the cluster"
	if f.Namespace != "" {
		where = "in namespace " + f.Namespace
	}
	if f.Name != "" {
		where += " with the name " + f.Name
	}
	advice := "check that this is the right cluster (--context, --kubeconfig); 'kubectl apply -f deploy/podnas.yaml' installs podnas"
	if f.Namespace != "" || f.Name != "" {
		advice = "leave out --namespace and --name to look for all"
	}
	return fmt.Errorf("there is no podnas %s: no StatefulSet with the label %s has a container %s\n  to do: %s", where, nameLabel, active.Container, advice)
}

func several(sets []appsv1.StatefulSet) error {
	var text strings.Builder
	for i := range sets {
		s := &sets[i]
		fmt.Fprintf(&text, "\n  --namespace=%s --name=%s   (%d of %d pods ready)", s.Namespace, s.Name, s.Status.ReadyReplicas, wanted(s))
	}
	return fmt.Errorf("there are %d podnas: say which one is meant, with%s", len(sets), &text)
}

func wanted(s *appsv1.StatefulSet) int32 {
	if s.Spec.Replicas == nil {
		return 1
	}
	return *s.Spec.Replicas
}

// withoutPod says why a StatefulSet has no pod.
func (f *Finder) withoutPod(ctx context.Context, namespace, name string) string {
	set, err := f.Client.AppsV1().StatefulSets(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "there is no such StatefulSet"
	case err == nil && wanted(set) == 0:
		return fmt.Sprintf("it is scaled to 0 pods: kubectl -n %s scale statefulset %s --replicas=1", namespace, name)
	}
	return fmt.Sprintf("there is no pod %s-0", name)
}

// stateOf says why podnas's container does not run, or nothing if it does. It may not be ready: its commands can
// say why.
func stateOf(pod *v1.Pod) string {
	if s := active.ContainerStatus(pod); s != nil {
		switch {
		case s.State.Running != nil:
			return ""
		case s.State.Waiting != nil && s.State.Waiting.Reason != "":
			return strings.TrimSuffix(fmt.Sprintf("its container waits: %s: %s", s.State.Waiting.Reason, s.State.Waiting.Message), ": ")
		case s.State.Terminated != nil:
			return fmt.Sprintf("its container has ended with %d (%s)", s.State.Terminated.ExitCode, s.State.Terminated.Reason)
		}
	}
	if c := active.Condition(pod, v1.PodScheduled); c != nil && c.Status == v1.ConditionFalse {
		return "its pod has no node: " + c.Message
	}
	return "its pod is " + string(pod.Status.Phase)
}
