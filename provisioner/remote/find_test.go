package remote

import (
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/podnas/podnas/provisioner/active"
)

// set is a StatefulSet as deploy/base and the chart make them.
func set(namespace, name string, replicas int32) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{nameLabel: name}}}
	s.Spec.Replicas = &replicas
	s.Spec.Template.Spec.Containers = []v1.Container{{Name: active.Container}}
	return s
}

func pod(namespace, name string, state v1.ContainerState) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p.Status.Phase = v1.PodPending
	if state != (v1.ContainerState{}) {
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "other", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}, {Name: active.Container, State: state}}
	}
	return p
}

func TestFind(t *testing.T) {
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	waiting := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}
	ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Error", ExitCode: 1}}
	other := set("db", "postgres", 1)
	other.Spec.Template.Spec.Containers[0].Name = "postgres"
	unscheduled := pod("podnas", "podnas-0", v1.ContainerState{})
	unscheduled.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Message: "0/3 nodes are available"}}
	two := set("podnas", "podnas", 2)
	role := func(name, role string, state v1.ContainerState) *v1.Pod {
		p := pod("podnas", name, state)
		p.Labels = map[string]string{"podnas.io/role": role}
		return p
	}
	base, basePod := set("podnas", "podnas", 1), pod("podnas", "podnas-0", running)
	team, teamPod := set("storage", "team-podnas", 1), pod("storage", "team-podnas-0", running)

	for _, tt := range []struct {
		name       string
		there      []runtime.Object
		finder     Finder
		forbidden  string // "verb resource namespace", which the caller may not
		broken     string // likewise, what fails
		want       string // the pod
		err        string
		notRunning bool
	}{
		{name: "the only one", there: []runtime.Object{other, base, basePod}, want: "podnas/podnas-0"},
		{name: "one of the chart", there: []runtime.Object{other, team, teamPod}, want: "storage/team-podnas-0"},
		{name: "none", there: []runtime.Object{other}, err: "there is no podnas in the cluster"},
		{name: "none, and what to do", err: "kubectl apply -f deploy/podnas.yaml"},
		{name: "none in the namespace", there: []runtime.Object{base, basePod}, finder: Finder{Namespace: "db"}, err: "no podnas in namespace db: no StatefulSet with the label app.kubernetes.io/name has a container podnas\n  to do: leave out --namespace"},
		{name: "none of the name", there: []runtime.Object{base, basePod}, finder: Finder{Name: "nas"}, err: "in the cluster with the name nas"},
		{
			name: "two", there: []runtime.Object{base, basePod, team, teamPod},
			err: "there are 2 podnas: say which one is meant, with\n  --namespace=podnas --name=podnas   (0 of 1 pods ready)\n  --namespace=storage --name=team-podnas   (0 of 1 pods ready)",
		},
		{name: "one of two by namespace", there: []runtime.Object{base, basePod, team, teamPod}, finder: Finder{Namespace: "storage"}, want: "storage/team-podnas-0"},
		{name: "one of two by name", there: []runtime.Object{base, basePod, team, teamPod}, finder: Finder{Name: "podnas"}, want: "podnas/podnas-0"},
		{name: "scaled to nothing", there: []runtime.Object{set("podnas", "podnas", 0)}, err: "podnas podnas/podnas does not run: it is scaled to 0 pods: kubectl -n podnas scale statefulset podnas --replicas=1", notRunning: true},
		{name: "without its pod", there: []runtime.Object{base}, err: "there is no pod podnas-0\n  to do: 'kubectl podnas doctor pod -n podnas --name podnas'", notRunning: true},
		{name: "no image", there: []runtime.Object{base, pod("podnas", "podnas-0", waiting)}, err: "its container waits: ImagePullBackOff: no such image", notRunning: true},
		{name: "ended", there: []runtime.Object{base, pod("podnas", "podnas-0", ended)}, err: "its container has ended with 1 (Error)", notRunning: true},
		{name: "no node", there: []runtime.Object{base, unscheduled}, err: "its pod has no node: 0/3 nodes", notRunning: true},
		{name: "just made", there: []runtime.Object{base, pod("podnas", "podnas-0", v1.ContainerState{})}, err: "its pod is Pending", notRunning: true},
		{name: "both are said, and nothing may be listed", there: []runtime.Object{base, basePod}, finder: Finder{Namespace: "podnas", Name: "podnas"}, forbidden: "list statefulsets *", want: "podnas/podnas-0"},
		{name: "both are said, and it is not there", finder: Finder{Namespace: "podnas", Name: "nas"}, err: "there is no such StatefulSet", notRunning: true},
		{name: "not all namespaces may be listed", there: []runtime.Object{base, basePod, team}, forbidden: "list statefulsets ", want: "podnas/podnas-0"},
		{name: "a likely one can't be listed", there: []runtime.Object{base, basePod}, forbidden: "list statefulsets ", broken: "list statefulsets mine", err: "look for podnas in the cluster: too busy"},
		{name: "none may be listed", there: []runtime.Object{base, basePod}, forbidden: "list statefulsets *", err: "no right to list StatefulSets in all namespaces, and in those where podnas is likely to be (podnas, mine)"},
		{name: "this one may not be listed", finder: Finder{Namespace: "podnas"}, forbidden: "list statefulsets *", err: "add the name of podnas's: --name=podnas"},
		{name: "the second is active", there: []runtime.Object{two, role("podnas-0", "standby", running), role("podnas-1", "active", running)}, want: "podnas/podnas-1"},
		{name: "the first is active", there: []runtime.Object{two, role("podnas-0", "active", running), role("podnas-1", "standby", running)}, want: "podnas/podnas-0"},
		{name: "the first is gone", there: []runtime.Object{two, role("podnas-1", "active", running)}, want: "podnas/podnas-1"},
		{name: "the first is gone, and pods may not be listed", there: []runtime.Object{two, role("podnas-1", "active", running)}, forbidden: "list pods *", err: "there is no pod podnas-0", notRunning: true},
		{name: "none is active", there: []runtime.Object{two, role("podnas-0", "standby", running), role("podnas-1", "standby", running)}, err: "none of its pods has the label podnas.io/role=active", notRunning: true},
		{name: "the active one does not run", there: []runtime.Object{two, role("podnas-0", "standby", running), role("podnas-1", "active", ended)}, err: "ended with 1", notRunning: true},
		{name: "another podnas is active", there: []runtime.Object{two, role("podnas-0", "standby", running), role("podnas-b-1", "active", running)}, err: "none of its pods", notRunning: true},
		{name: "pods may not be listed", there: []runtime.Object{two, role("podnas-0", "standby", running), role("podnas-1", "active", running)}, forbidden: "list pods *", err: "no right to get and list pods"},
		{name: "no right to see the pod", there: []runtime.Object{base, basePod}, forbidden: "get pods *", err: "no right to get and list pods in namespace podnas"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := fake.NewClientset(tt.there...)
			client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
				did := a.GetVerb() + " " + a.GetResource().Resource + " "
				if tt.forbidden == did+a.GetNamespace() || tt.forbidden == did+"*" {
					return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: a.GetResource().Resource}, "", errors.New("no"))
				}
				if tt.broken == did+a.GetNamespace() {
					return true, nil, apierrors.NewServiceUnavailable("too busy")
				}
				return false, nil, nil
			})
			f := tt.finder
			f.Client, f.Likely = client, []string{"podnas", "mine"}
			found, err := f.Find(t.Context())
			var notRunning *NotRunningError
			switch {
			case tt.err == "" && (err != nil || found.Namespace+"/"+found.Name != tt.want):
				t.Errorf("%+v, %v, want %s", found, err, tt.want)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || errors.As(err, &notRunning) != tt.notRunning):
				t.Errorf("%v (%T), want %q", err, err, tt.err)
			}
		})
	}
}
