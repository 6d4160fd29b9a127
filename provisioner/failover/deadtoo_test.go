package failover_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/podnas/podnas/provisioner/failover"
)

// The node that was failed over keeps its taint, and then the next one dies: the first one's command, called again, names the second one.
func TestSecondDeadNode(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"its pod is said to be ready yet": func(w *world) {
			w.pod = pod("dead-too", true)
			w.others = append(w.others, node("dead-too", v1.ConditionUnknown, "boot-3"))
		},
		"its pod is not ready": func(w *world) {
			w.pod = pod("dead-too", false)
			w.others = append(w.others, node("dead-too", v1.ConditionUnknown, "boot-3"))
		},
		"it is gone": func(w *world) { w.pod = pod("dead-too", true) },
		"of two podnas with one disk": func(w *world) {
			other := w.shared("standby", "active")
			other.Spec.NodeName, w.pod.Spec.NodeName = "dead-too", ""
			w.others = append(w.others, node("dead-too", v1.ConditionUnknown, "boot-3"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			tainted(w.dead)
			change(w)
			client := w.client()
			f := of(t, client)
			f.IsOff = true
			var refused *failover.RefusedError
			if err := f.Run(soon(t)); !errors.As(err, &refused) {
				t.Errorf("it ends with %v, want a refusal", err)
			} else {
				contains(t, err.Error(), "does not run on dead", "kubectl podnas failover dead-too -n podnas --name podnas")
			}
			unchanged(t, client)
		})
	}
}

// begun is a failover that was begun before: the next pod, on another node, is not ready yet.
func begun(t *testing.T) (*failover.Failover, *fake.Clientset) {
	t.Helper()
	w := newWorld()
	tainted(w.dead)
	w.pod = pod("alive", false)
	client := w.client()
	return of(t, client), client
}

// The next node dies while it is waited for.
func TestDiesWhileWatched(t *testing.T) {
	f, client := begun(t)
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	var said strings.Builder
	f.Say = func(format string, args ...any) {
		fmt.Fprintf(&said, format+"\n", args...)
		switch {
		case strings.Contains(said.String(), "not Ready"):
			cancel()
			return
		case !strings.Contains(format, "%5.1f s"): // what it waits for
			return
		}
		if _, err := client.CoreV1().Nodes().Update(t.Context(), node("alive", v1.ConditionUnknown, "boot-2"), metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := client.CoreV1().Pods("podnas").Update(t.Context(), pod("alive", true), metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
	}
	if err := f.Run(ctx); err == nil {
		t.Errorf("it ends well: %s", &said)
	} else {
		contains(t, err.Error(), "podnas does not serve yet", "kubectl podnas failover alive -n podnas --name podnas")
	}
}

// Each look asks once for the node of each pod: client-go makes five calls per second.
func TestAsksForNodesOnce(t *testing.T) {
	f, client := begun(t)
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	f.Say = func(string, ...any) { cancel() } // after the first look of watch it ends
	if err := f.Run(ctx); err == nil {
		t.Error("it ends well")
	}
	looks, asked := 0, 0
	for _, a := range client.Actions() {
		get, ok := a.(clienttesting.GetAction)
		switch {
		case !ok:
		case get.GetName() == "podnas-0":
			looks++
		case get.GetName() == "alive":
			asked++
		}
	}
	if looks < 2 || asked != looks {
		t.Errorf("in %d looks the node was asked for %d times", looks, asked)
	}
}

// A standby on a node that is dead, too, is not told of as the one that serves.
func TestBothDead(t *testing.T) {
	w := newWorld()
	w.shared("standby", "active")
	w.others[0] = node("alive", v1.ConditionUnknown, "boot-2")
	f := of(t, w.client())
	var said strings.Builder
	f.Say = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
	no := errors.New("no")
	f.Ask = func(string) error { return no }
	if err := f.Run(soon(t)); !errors.Is(err, no) {
		t.Errorf("it ends with %v", err)
	}
	contains(t, said.String(), "None has yet")
}
