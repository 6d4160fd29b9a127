package checkup

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/provisioner/active"
)

// runs reports whether podnas's process runs.
func runs(p *v1.Pod) bool {
	s := active.ContainerStatus(p)
	return s != nil && s.State.Running != nil
}

// pod checks how far podnas's pod has come, and what blocks it.
func (o *Outside) pod(ctx context.Context, p *v1.Pod) []doctor.Result {
	ended := p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded
	if why := o.silent(ctx, p); why != "" && !ended {
		return only(doctor.Fail(o.deadNode(p.Spec.NodeName), "%s", why))
	}
	if d := p.DeletionTimestamp; d != nil {
		if time.Since(d.Time) < young { // the time by which it should have ended
			return only(doctor.Warn("try again in a minute", "it is ending; another one follows"))
		}
		return only(doctor.Fail(o.deadNode(p.Spec.NodeName)+". If the node is Ready, the kernel's log there says what keeps the pod from ending: a disk that hangs, mostly. "+
			"Not kubectl delete pod --force: if the old pod still runs, two podnas write to one disk; if not, its disk is attached elsewhere after six minutes only",
			"it should have ended at %s, but its node %s does not report that it has", d.UTC().Format(time.RFC3339), p.Spec.NodeName))
	}
	if ended {
		return only(doctor.Fail(fmt.Sprintf("kubectl -n %s delete pod %s makes a new one. A node that is short of memory or disk evicts pods, those of a high priorityClassName last", o.Namespace, p.Name),
			"it has ended: %s", words(p.Status.Reason, p.Status.Message)))
	}
	if p.Spec.NodeName == "" {
		return only(o.unscheduled(p))
	}
	var results []doctor.Result
	statuses := append(append([]v1.ContainerStatus{}, p.Status.InitContainerStatuses...), p.Status.ContainerStatuses...)
	for i := range statuses {
		s := &statuses[i]
		if t := s.State.Terminated; t != nil && t.ExitCode == 0 && i < len(p.Status.InitContainerStatuses) {
			continue // done
		}
		for _, r := range o.container(p, s) {
			if s.Name != active.Container {
				r.Says = "container " + s.Name + ": " + r.Says
			}
			results = append(results, r)
		}
	}
	if len(results) == 0 {
		return only(o.beginning(p))
	}
	return results
}

// unscheduled says why a pod has no node.
func (o *Outside) unscheduled(p *v1.Pod) doctor.Result {
	c := active.Condition(p, v1.PodScheduled)
	if c == nil || c.Status == v1.ConditionTrue {
		if time.Since(p.CreationTimestamp.Time) < young {
			return doctor.Warn("try again in a minute", "it waits for a node")
		}
		return doctor.Fail("check whether kube-scheduler works: if not, other new pods get no node either", "no scheduler has looked for a node yet")
	}
	var fixes []string
	for _, known := range []struct{ says, fix string }{
		{"ersistent", "see the check of the disk's claim below"}, // PersistentVolumeClaims, persistentvolumeclaim "..." not found
		{"volume node affinity conflict", "the disk is on a node, or in a zone, that is gone or accepts no pods: kubectl get nodes; kubectl get pv -o wide, and nodeAffinity in its PersistentVolume"},
		{"node affinity/selector", "label the intended node as the nodeSelector requires, for deploy/overlays/hostpath: kubectl label node NODE podnas.io/disk=true"},
		{"untolerated taint", "a node that is not ready has a taint too: kubectl get nodes. Otherwise remove the taint, or give the StatefulSet a toleration (tolerations in the chart)"},
		{"Insufficient", "make room on a node, or request less (resources.requests)"},
		{"Too many pods", "make room on a node"},
	} {
		if strings.Contains(c.Message, known.says) {
			fixes = append(fixes, known.fix)
		}
	}
	return doctor.Fail(cmp.Or(strings.Join(fixes, ". "), "do what the scheduler says; it tries again by itself"), "no node accepts it: %s", words(c.Reason, c.Message))
}

// beginning checks a pod that has a node, but no containers yet.
func (o *Outside) beginning(p *v1.Pod) doctor.Result {
	why := o.warned(p.UID, "FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox", "NetworkNotReady", "FailedCreatePodContainer")
	switch {
	case strings.Contains(why, "Multi-Attach"):
		return doctor.Fail("the disk is still attached to another node, whose pod has not ended or which is dead: kubectl get volumeattachments says which NODE. If it is dead, and off: "+o.failover("NODE")+", with which Kubernetes detaches the disk at once, and not after six minutes",
			"node %s can't attach its disk: %s", p.Spec.NodeName, why)
	case why != "":
		return doctor.Fail(fmt.Sprintf("do what the message says; podnas does not provide the storage below it. kubectl -n %s describe pod %s shows all events", o.Namespace, p.Name),
			"node %s can't start it: %s", p.Spec.NodeName, why)
	case time.Since(p.CreationTimestamp.Time) < young:
		return doctor.Warn("try again in a minute", "node %s is starting it", p.Spec.NodeName)
	}
	return doctor.Fail(fmt.Sprintf("check whether the node is ready: kubectl get node %s; then read its kubelet's log", p.Spec.NodeName),
		"node %s has not started it, and does not say why", p.Spec.NodeName)
}

// container checks an existing container.
func (o *Outside) container(p *v1.Pod, s *v1.ContainerStatus) []doctor.Result {
	if s.State.Waiting != nil {
		return only(o.waiting(p, s))
	}
	if t := s.State.Terminated; t != nil {
		return only(o.ended(p, s, t, "it has ended, and will be started again"))
	}
	if s.State.Running == nil {
		return only(o.beginning(p))
	}
	var results []doctor.Result
	since := time.Since(s.State.Running.StartedAt.Time)
	why := o.warned(p.UID, "Unhealthy")
	switch {
	case s.Ready:
		results = append(results, doctor.Good("it runs on node %s, for %s, and is ready", p.Spec.NodeName, since.Round(time.Second)))
	case since < young:
		results = append(results, doctor.Warn("try again in a minute", "it is starting: %s", cmp.Or(why, "it runs, but is not ready yet")))
	default:
		results = append(results, doctor.Fail(fmt.Sprintf("its own checks say why: kubectl -n %s exec %s -- podnas doctor", o.Namespace, p.Name),
			"it runs, but is not ready: %s", cmp.Or(why, "the result of its probe is unknown")))
	}
	if t := s.LastTerminationState.Terminated; t != nil && time.Since(t.FinishedAt.Time) < time.Hour {
		r := o.ended(p, s, t, fmt.Sprintf("it was restarted %d time%s, the last time at %s",
			s.RestartCount, map[bool]string{true: "", false: "s"}[s.RestartCount == 1], t.FinishedAt.UTC().Format(time.RFC3339)))
		r.Status = doctor.Warning // it runs
		results = append(results, r)
	}
	return results
}

// waiting says what a container waits for.
func (o *Outside) waiting(p *v1.Pod, s *v1.ContainerStatus) doctor.Result {
	w := s.State.Waiting
	switch w.Reason {
	case "ContainerCreating", "PodInitializing", "":
		return o.beginning(p)
	case "CrashLoopBackOff":
		says := fmt.Sprintf("it ends again and again, %d times so far", s.RestartCount)
		if t := s.LastTerminationState.Terminated; t != nil {
			return o.ended(p, s, t, says)
		}
		return doctor.Fail(o.log(p, s), "%s: %s", says, w.Message)
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable", "ImageInspectError":
		fix := "check that the name and the tag are right, that the node reaches the registry, and, if it is private, that imagePullSecrets is set. " +
			"An image of make image is copied to the nodes by kind load image-archive, minikube image load or ctr images import"
		if w.Reason == "ErrImageNeverPull" {
			fix = "imagePullPolicy is Never, so the image must be on the node already: kind load image-archive, minikube image load or ctr images import"
		}
		// Back-off says only that it waits; the reason is in the last attempt's message.
		why := w.Message
		if w.Reason == "ImagePullBackOff" {
			why = cmp.Or(o.warned(p.UID, "Failed"), why)
		}
		return doctor.Fail(fix, "node %s can't get the image %s: %s", p.Spec.NodeName, s.Image, words(w.Reason, why))
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return doctor.Fail("do what the message says: this node can't provide what the StatefulSet requests. If you changed nothing there, the log of the node's container runtime says more",
			"node %s can't start it: %s", p.Spec.NodeName, words(w.Reason, w.Message))
	}
	return doctor.Fail(fmt.Sprintf("do what the message says; kubectl -n %s describe pod %s shows more", o.Namespace, p.Name), "it waits: %s", words(w.Reason, w.Message))
}

// ended says how a container ended, with the end of its log, which
// terminationMessagePolicy puts into the pod's status, so that no right to read logs
// is needed.
func (o *Outside) ended(p *v1.Pod, s *v1.ContainerStatus, t *v1.ContainerStateTerminated, says string) doctor.Result {
	fix := o.log(p, s)
	switch {
	case t.Reason == "OOMKilled":
		says += ". It was killed because it used too much memory"
		fix = "raise its memory limit (deploy/base has 2Gi): the cache of served files counts too. If it has none, its node has too little memory"
	case t.ExitCode == 0:
		says += ". It was asked to end, and did"
		fix = fmt.Sprintf("the events say why: kubectl -n %s describe pod %s", o.Namespace, p.Name)
	case t.ExitCode == 137:
		says += ". It was killed (137)"
		if why := o.warned(p.UID, "Unhealthy"); why != "" {
			says += ", because it did not answer its probe: " + why
			fix = "a disk that hangs is the most common cause: check the kernel's log of node " + p.Spec.NodeName + ". " + fix
		}
	case t.ExitCode == 2 && s.Name == active.Container:
		says += ". Its command line is invalid (exit code 2)"
		fix = "correct the arguments in the StatefulSet; docs/reference/podnas_serve.md has all flags. " + fix
	default:
		says += fmt.Sprintf(". It ended with exit code %d", t.ExitCode)
		if t.Reason != "" && t.Reason != "Error" {
			says += ", " + t.Reason
		}
		if s.Name == active.Container {
			fix = "do what the end of its log says. " + fix
		}
	}
	if message := strings.TrimSpace(t.Message); message != "" {
		says += ". The end of its log:\n    " + strings.ReplaceAll(message, "\n", "\n    ")
	}
	return doctor.Fail(fix, "%s", says)
}

// log returns the command that shows the log of a container that has ended.
func (o *Outside) log(p *v1.Pod, s *v1.ContainerStatus) string {
	return fmt.Sprintf("Its whole log: kubectl -n %s logs %s -c %s --previous", o.Namespace, p.Name, s.Name)
}

// words joins a reason and a message, one of which may be empty.
func words(reason, message string) string {
	switch {
	case message == "":
		return cmp.Or(reason, "no reason is given")
	case reason == "" || strings.Contains(message, reason):
		return message
	}
	return message + " (" + reason + ")"
}
