// Package failover brings podnas up on another node when the one that it runs on is dead: 'podnas failover'. Kubernetes alone
// does not: it starts no second pod of a StatefulSet, and detaches no disk, while it can't know whether the first one still
// writes. A person can, and says so here.
//
// Run looks first, and changes nothing if it refuses (look.go, heard.go, disk.go). A person may take minutes to answer, so it looks at
// the node again before each thing that it does: one that has come back is not given up. It sets the taint
// node.kubernetes.io/out-of-service, with which Kubernetes detaches the node's volumes, deletes podnas's pod there, and tells what the
// next pod waits for (watch.go). Each step may have been done before: a failover that was interrupted is gone on with. End takes the
// taint away when the node is back (end.go).
package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// Annotations of a node that Run has tainted.
const (
	bootAnnotation = "podnas.io/failed-over-boot" // the boot of it that was given up
	// The taint's time, which tells it from one that somebody else has set since.
	timeAnnotation = "podnas.io/failed-over-at"
)

// Failover is of one podnas, from one node. It uses the rights of the caller.
type Failover struct {
	Client          kubernetes.Interface
	Namespace, Name string // of the StatefulSet
	Node            string
	// IsOff means that the caller knows that the node is off.
	IsOff bool
	// Ask asks a person a question, and returns nil if the answer is yes. Nil: nobody is there.
	Ask func(question string) error
	// Say tells what happens.
	Say func(format string, args ...any)
	// Timeout is how long Run takes at most without the answer of Ask, and again after it: who answers may go to the node first. 0: for
	// ever.
	Timeout time.Duration

	// Of the StatefulSet, when it was looked at.
	number int  // of its pods
	shared bool // they share one disk: one serves, and another one takes over by itself
	// was is the UID of the pod on the node; empty: there was none.
	was types.UID
}

// RefusedError says why podnas is not failed over, and what to do instead. Nothing is changed, or not any more.
type RefusedError struct{ Says, Fix string }

func (e *RefusedError) Error() string { return e.Says + "\n  to do: " + e.Fix }

// NobodyError means that there was nobody to ask whether the node is off.
type NobodyError struct{ Node string }

func (e *NobodyError) Error() string {
	return "nobody is here to say whether " + e.Node + " is off; if you know that it is, use --it-is-off"
}

// Run fails podnas over, and returns when it serves again. With a *RefusedError, a *NobodyError or the error of Ask nothing is changed;
// with another error some of it may be done, and the next call goes on.
func (f *Failover) Run(ctx context.Context) error {
	looking, stop := f.inTime(ctx)
	defer stop()
	s, err := f.look(looking)
	if err != nil {
		return err
	}
	began := time.Now()
	if s.begun {
		f.Say("A failover from %s was begun before", f.Node)
		return f.watch(looking, began)
	}
	f.tellShared(s)
	if err := f.sure(s); err != nil {
		return err
	}
	ctx, stop = f.inTime(ctx)
	defer stop()
	if err := f.listen(ctx, s, began); err != nil {
		return err
	}
	if s.node == nil {
		f.Say("There is no node %s any more, so it gets no taint", f.Node)
	} else if err := f.taint(ctx, s); err != nil {
		return err
	}
	if err := f.stillDead(ctx, s); err != nil {
		return err
	}
	if s.pod != nil {
		if err := f.deletePod(ctx, s.pod); err != nil {
			return err
		}
	}
	return f.watch(ctx, began)
}

// inTime limits what is done with a context by the Timeout, from now on.
func (f *Failover) inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.Timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, f.Timeout, fmt.Errorf("not within --timeout=%s", f.Timeout))
}

// tellShared says what a standby has done by itself, and what it leaves.
func (f *Failover) tellShared(s *state) {
	switch {
	case !f.shared || s.pod == nil:
	case s.serves != nil:
		f.Say("podnas serves on %s, and needs nobody for that. Left to do: pod %s on %s has to go, so that there is a standby again", s.serves.Spec.NodeName, s.pod.Name, f.Node)
	default:
		f.Say("A standby takes over by itself, some 15 seconds after a death. None has yet: '%s' says why", f.doctor())
	}
}

// sure is nil if somebody says that the node is off.
func (f *Failover) sure(s *state) error {
	if f.IsOff {
		return nil
	}
	if f.Ask == nil {
		return &NobodyError{f.Node}
	}
	is := "runs on"
	if s.pod == nil {
		is = "has no pod any more, but its disk, on"
	}
	question := fmt.Sprintf("podnas %s/%s %s %s, %s.\n%s\nAll pods of %[4]s are deleted, and its volumes detached.\nIs %[4]s off? [y/N] ",
		f.Namespace, f.Name, is, f.Node, s.heard, s.disk)
	if err := f.Ask(question); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	return nil
}

// outOfService is the taint by which Kubernetes is told that a node is off.
func outOfService() *v1.Taint {
	now := metav1.NewTime(time.Now().Truncate(time.Second)) // as the API server keeps it
	return &v1.Taint{Key: v1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: v1.TaintEffectNoExecute, TimeAdded: &now}
}

// taint tells Kubernetes that the node is off, unless it has come back since it was looked at. An update of a node that has changed
// meanwhile is a conflict, so it is looked at again.
func (f *Failover) taint(ctx context.Context, s *state) error {
	nodes := f.Client.CoreV1().Nodes()
	var was, set *v1.Taint // what the node had, and what it has by this
	ours := true
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := nodes.Get(ctx, f.Node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		switch how, err := f.cameBack(ctx, s, node); {
		case err != nil:
			return err
		case how != "":
			return f.backAgain(node, how)
		}
		boot := node.Status.NodeInfo.BootID
		if was, ours = taintOf(node), true; was == nil {
			set = outOfService()
			node.Spec.Taints = append(node.Spec.Taints, *set)
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, timeAnnotation, timeOf(set))
		} else if ours = Ours(node); !ours || node.Annotations[bootAnnotation] == boot {
			return nil
		}
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, bootAnnotation, boot)
		_, err = nodes.Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		return refused
	case apierrors.IsNotFound(err):
		f.Say("There is no node %s any more, so it gets no taint", f.Node)
	case err != nil:
		return f.denied("set the taint "+v1.TaintNodeOutOfService, "get and update nodes", err)
	case !ours:
		f.Say("%s has the taint %s already, which somebody else has set", f.Node, v1.TaintNodeOutOfService)
	case was != nil:
		f.Say("%s has the taint %s already", f.Node, v1.TaintNodeOutOfService)
	default:
		s.taint = set
		f.Say("%s has the taint %s now: Kubernetes detaches its volumes", f.Node, v1.TaintNodeOutOfService)
	}
	return nil
}

// stillDead looks at the node once more: before its pod is deleted, too, whose UID a restart of the node does not change.
func (f *Failover) stillDead(ctx context.Context, s *state) error {
	node, err := f.Client.CoreV1().Nodes().Get(ctx, f.Node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return f.denied("look at node "+f.Node, "get nodes", err)
	}
	how, err := f.cameBack(ctx, s, node)
	switch {
	case err != nil || how == "":
		return err
	case has(node, s.taint):
		return f.withdraw(ctx, s.taint, how)
	}
	return f.backAgain(node, how)
}

// withdraw takes the taint that this call has set from a node that runs again. With the taint, Kubernetes detaches a disk as soon as
// its pod has ended, and does not wait until kubelet has unmounted it: the next pod may have it while the node writes to it.
func (f *Failover) withdraw(ctx context.Context, set *v1.Taint, how string) error {
	nodes := f.Client.CoreV1().Nodes()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := nodes.Get(ctx, f.Node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !has(node, set) {
			return nil // somebody was faster
		}
		takeOff(node)
		_, err = nodes.Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("node %s has come back: it %s. This has set its taint, and can't take it off: %w\n"+
			"  to do: at once: %s. With it Kubernetes may detach the disk while the node writes to it", f.Node, how, err, byHand(f.Node))
	}
	return &RefusedError{
		fmt.Sprintf("node %s has come back: it %s, and podnas may run there. The taint that this has set is taken off again", f.Node, how),
		fmt.Sprintf("kubectl get node %s. Pods that Kubernetes began to delete meanwhile are made again, perhaps elsewhere. If the node is dead all the same, call this again", f.Node),
	}
}

// backAgain refuses to give up a node that runs again.
func (f *Failover) backAgain(node *v1.Node, how string) error {
	says := fmt.Sprintf("node %s has come back since this looked at it: it %s. podnas may run there", f.Node, how)
	if taintOf(node) == nil {
		return &RefusedError{says, fmt.Sprintf("kubectl get node %s. If it is dead all the same, call this again", f.Node)}
	}
	return &RefusedError{
		says + fmt.Sprintf(". It has the taint %s, which this call has not set: with it Kubernetes may detach the disk of podnas at once, while the node writes to it", v1.TaintNodeOutOfService),
		fmt.Sprintf("at once: cut the node's power, and call this again; or, if it is to run on, %s, and look with kubectl get node %s", byHand(f.Node), f.Node),
	}
}

// deletePod deletes podnas's pod, without waiting for the node's kubelet.
func (f *Failover) deletePod(ctx context.Context, pod *v1.Pod) error {
	at := int64(0)
	err := f.Client.CoreV1().Pods(f.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &at, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // Kubernetes was faster
	case err != nil:
		return f.denied("delete pod "+pod.Name, "delete pods", err)
	}
	f.Say("Pod %s on %s is deleted", pod.Name, f.Node)
	return nil
}

// denied is an error of the API server.
func (f *Failover) denied(what, right string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%s: you lack the right to %s: %w", what, right, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// taintOf returns the taint by which a node is out of service, or nil.
func taintOf(node *v1.Node) *v1.Taint {
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].Key == v1.TaintNodeOutOfService {
			return &node.Spec.Taints[i]
		}
	}
	return nil
}

// timeOf is what timeAnnotation says of a taint that Run has set.
func timeOf(t *v1.Taint) string { return t.TimeAdded.UTC().Format(time.RFC3339) }

// ourTaint returns the taint that Run has set, or nil. Others set it, too, also with another effect beside ours, and kubectl takes it
// away without the annotations.
func ourTaint(node *v1.Node) *v1.Taint {
	for i := range node.Spec.Taints {
		if t := &node.Spec.Taints[i]; t.Key == v1.TaintNodeOutOfService && t.TimeAdded != nil && node.Annotations[timeAnnotation] == timeOf(t) {
			return t
		}
	}
	return nil
}

// Ours reports whether a node has the taint that Run sets.
func Ours(node *v1.Node) bool { return ourTaint(node) != nil }

// has reports whether a node has the taint that a call has set; nil: it has set none.
func has(node *v1.Node, set *v1.Taint) bool {
	ours := ourTaint(node)
	return ours != nil && set != nil && ours.TimeAdded.Equal(set.TimeAdded)
}

// takeOff takes from a node what Run has given it: its taint, which has to be there, and the annotations.
func takeOff(node *v1.Node) {
	ours := *ourTaint(node)
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.MatchTaint(&ours) })
	delete(node.Annotations, bootAnnotation)
	delete(node.Annotations, timeAnnotation)
}

// failover is the command for another node, and doctor the one that says why podnas does not serve.
func (f *Failover) failover(node string) string {
	return fmt.Sprintf("kubectl podnas failover %s -n %s --name %s", node, f.Namespace, f.Name)
}

func (f *Failover) doctor() string {
	return fmt.Sprintf("kubectl podnas doctor pod -n %s --name %s", f.Namespace, f.Name)
}

// errNoSet says which podnas there is not.
func (f *Failover) errNoSet() error {
	return &RefusedError{
		fmt.Sprintf("there is no StatefulSet %s in namespace %s", f.Name, f.Namespace),
		"name it with --name and --namespace; kubectl get statefulsets -A -l app.kubernetes.io/name=podnas finds it",
	}
}
