package checkup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner/active"
)

// young is how long something may take to start before it is reported as stuck.
const young = time.Minute

// Outside checks a podnas that does not run, by what the API server knows of its pod.
// It uses the rights of the caller.
type Outside struct {
	Client          kubernetes.Interface
	Namespace, Name string // of the StatefulSet

	events []v1.Event          // of the namespace, latest first
	nodes  map[string]*v1.Node // by name; nil: the caller may not see them
	number int                 // of pods that there are to be
}

// Look returns its findings, and whether podnas certainly does not run.
func (o *Outside) Look(ctx context.Context) (results []doctor.Result, down bool) {
	ctx, cancel := context.WithTimeout(ctx, doctor.Timeout)
	defer cancel()
	events, err := o.Client.CoreV1().Events(o.Namespace).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		results = append(results, o.denied("rights", "list events", err, doctor.Warning))
	case err != nil:
		return []doctor.Result{named("API server", doctor.Fail("check that kubectl reaches it: kubectl version", "can't be queried: %v", err))}, false
	default:
		o.events = events.Items
		slices.SortFunc(o.events, func(a, b v1.Event) int { return seen(&b).Compare(seen(&a)) })
	}

	set, err := o.Client.AppsV1().StatefulSets(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return append(results, named("statefulset", doctor.Fail(
			"install it: kubectl apply -f deploy/podnas.yaml. If it has another name or namespace, use --name and --namespace; kubectl get statefulsets -A -l app.kubernetes.io/name=podnas finds it",
			"there is no StatefulSet %s in namespace %s", o.Name, o.Namespace))), true
	case err != nil:
		results = append(results, o.denied("statefulset", "get statefulsets", err, doctor.Failed))
		set = nil
	}
	results = append(results, o.lookAtNodes(ctx)...)
	o.number = numberOf(set)
	pods, failed := o.pods(ctx)
	if failed != nil {
		return append(results, failed...), false
	}
	down = !slices.ContainsFunc(pods, func(pod *v1.Pod) bool { return pod != nil && runs(pod) })
	for i, pod := range pods {
		for _, r := range o.set(set, pod, i) {
			if r = named("statefulset", r); !slices.Contains(results, r) { // it may be the same for all pods
				results = append(results, r)
			}
		}
	}
	for _, pod := range pods {
		if pod != nil {
			for _, r := range o.pod(ctx, pod) {
				results = append(results, named("pod "+pod.Name, r))
			}
		}
	}
	if isShared(set) {
		results = append(results, o.roles(ctx, set, pods)...)
	}
	results = append(results, o.claims(ctx, set, pods)...)
	return append(results, o.back()...), down
}

// pods returns podnas's pods by their number, nil for one that is not there, or what keeps it from looking at them.
func (o *Outside) pods(ctx context.Context) (pods []*v1.Pod, failed []doctor.Result) {
	for i := range o.number {
		pod, err := o.Client.CoreV1().Pods(o.Namespace).Get(ctx, o.podName(i), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			pod = nil
		case err != nil:
			return nil, only(o.denied("pod "+o.podName(i), "get pods", err, doctor.Failed))
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// claims checks each claim of the pods once.
func (o *Outside) claims(ctx context.Context, set *appsv1.StatefulSet, pods []*v1.Pod) (results []doctor.Result) {
	told := map[string]bool{}
	for i, pod := range pods {
		for _, claim := range claimsOf(set, pod, o.podName(i)) {
			if told[claim] {
				continue
			}
			told[claim] = true
			for _, r := range o.claim(ctx, claim, set, pod) {
				results = append(results, named("claim "+claim, r))
			}
		}
	}
	return results
}

func (o *Outside) podName(number int) string { return fmt.Sprintf("%s-%d", o.Name, number) }

func only(r doctor.Result) []doctor.Result { return []doctor.Result{r} }

func named(check string, r doctor.Result) doctor.Result {
	r.Check = check
	return r
}

// denied reports a query that the caller may not make, or that the API server did not
// answer.
func (o *Outside) denied(check, what string, err error, s doctor.Status) doctor.Result {
	if !apierrors.IsForbidden(err) {
		return named(check, doctor.Fail("try again, and check that kubectl reaches the API server", "can't %s: %v", what, err))
	}
	r := doctor.Fail(fmt.Sprintf("get the ClusterRole view: kubectl -n %s create rolebinding NAME --clusterrole=view --user=YOU", o.Namespace),
		"you have no right to %s in namespace %s, so what they would show is missing here: %v", what, o.Namespace, err)
	r.Status = s
	return named(check, r)
}

// set checks the StatefulSet, and why it lacks the pod of a number.
func (o *Outside) set(set *appsv1.StatefulSet, pod *v1.Pod, number int) []doctor.Result {
	if set == nil {
		if pod == nil {
			return only(doctor.Fail("get the right to read StatefulSets, or ask somebody who has it", "there is no pod %s, for an unknown reason", o.podName(number)))
		}
		return nil
	}
	if set.DeletionTimestamp != nil {
		return only(doctor.Fail("apply it again when it is gone; its claim is kept (kubectl get pvc)", "it is being deleted"))
	}
	if set.Spec.Replicas != nil && *set.Spec.Replicas == 0 {
		return only(doctor.Fail(fmt.Sprintf("kubectl -n %s scale statefulset %s --replicas=1", o.Namespace, o.Name), "it is scaled to 0 pods"))
	}
	if pod == nil {
		if why := o.warned(set.UID); why != "" {
			return only(doctor.Fail(o.uncreated(why), "%s can't be created: %s", o.its(number), why))
		}
		if time.Since(set.CreationTimestamp.Time) < young {
			return only(doctor.Warn("try again in a minute", "%s is not created yet", o.its(number)))
		}
		return only(doctor.Fail("check whether kube-controller-manager works: if not, other StatefulSets get no pods either",
			"%s is not created, and no event says why", o.its(number)))
	}
	// Kubernetes replaces a pod by one of a changed template only when it is ready,
	// and this one may never be.
	if was, is := pod.Labels[appsv1.ControllerRevisionHashLabelKey], set.Status.UpdateRevision; was != "" && is != "" && was != is && !active.IsReady(pod) {
		return only(doctor.Fail(fmt.Sprintf("kubectl -n %s delete pod %s: the next one has the new template. No data is lost", o.Namespace, pod.Name),
			"it was changed, but %s is still the old one: Kubernetes does not replace a pod that is not ready", o.its(number)))
	}
	return only(doctor.Good("it exists, and has %s", o.its(number)))
}

// its is the pod of a number, in words.
func (o *Outside) its(number int) string {
	if o.number == 1 {
		return "its pod"
	}
	return "its pod " + o.podName(number)
}

// uncreated says what to do if the API server refuses a pod.
func (o *Outside) uncreated(why string) string {
	switch {
	case strings.Contains(why, `PodSecurity "baseline:`):
		return fmt.Sprintf("kubectl label --overwrite namespace %s pod-security.kubernetes.io/enforce=privileged; if that is not possible, use deploy/podnas.yaml without more rights, which meets the level baseline", o.Namespace)
	case strings.Contains(why, "PodSecurity"):
		return fmt.Sprintf("kubectl label --overwrite namespace %s pod-security.kubernetes.io/enforce=baseline; if that is not possible, use deploy/overlays/restricted", o.Namespace)
	case strings.Contains(why, "exceeded quota"):
		return "raise the ResourceQuota of the namespace, or remove it"
	case strings.Contains(why, "serviceaccount"):
		return "apply all of deploy/podnas.yaml, which contains the ServiceAccount"
	case strings.Contains(why, "no PriorityClass with name"):
		return "apply all of deploy/podnas.yaml, which contains the PriorityClass"
	}
	return "do what the message says; the StatefulSet tries again by itself"
}

// claimsOf returns the claims that the pod mounts, or would mount.
func claimsOf(set *appsv1.StatefulSet, pod *v1.Pod, podName string) []string {
	var volumes []v1.Volume
	var claims []string
	switch {
	case pod != nil:
		volumes = pod.Spec.Volumes
	case set != nil:
		volumes = set.Spec.Template.Spec.Volumes
		for i := range set.Spec.VolumeClaimTemplates {
			claims = append(claims, set.Spec.VolumeClaimTemplates[i].Name+"-"+podName)
		}
	}
	for i := range volumes {
		if c := volumes[i].PersistentVolumeClaim; c != nil {
			claims = append(claims, c.ClaimName)
		}
	}
	return claims
}

// warned returns the last warning about an object, with one of the reasons if any are
// given. It compares UIDs, because a new object may have the name of an earlier one.
func (o *Outside) warned(uid types.UID, reasons ...string) string {
	for i := range o.events {
		e := &o.events[i]
		if e.InvolvedObject.UID != uid || e.Type != v1.EventTypeWarning || len(reasons) > 0 && !slices.Contains(reasons, e.Reason) {
			continue
		}
		// kubelet repeats the container's state like this: Error: ImagePullBackOff.
		if !strings.HasPrefix(e.Message, "Error: ") {
			return strings.TrimSpace(e.Message)
		}
	}
	return ""
}

// seen is the time of an event's last occurrence.
func seen(e *v1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
}
