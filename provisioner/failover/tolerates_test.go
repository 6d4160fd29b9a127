package failover_test

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tolerates has podnas's pods tolerate taints.
func tolerates(all ...v1.Toleration) func(*world) {
	return func(w *world) {
		w.pod.Spec.Tolerations, w.set.Spec.Template.Spec.Tolerations = all, all
	}
}

// A podnas that tolerates some of the dead node's taints is not put there again.
func TestTolerations(t *testing.T) {
	for name, c := range map[string]func(*world){
		"what Kubernetes adds":   tolerates(v1.Toleration{Key: v1.TaintNodeUnreachable, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}),
		"what no pod is put for": tolerates(v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}),
		"not what the node has": func(w *world) {
			w.dead.Spec.Taints = []v1.Taint{{Key: "mine", Effect: v1.TaintEffectNoSchedule}}
			tolerates(v1.Toleration{Key: v1.TaintNodeOutOfService, Operator: v1.TolerationOpExists})(w)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			c(w)
			client := w.client()
			f := of(t, client)
			f.IsOff = true
			go nextPod(t.Context(), client)
			if err := f.Run(soon(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// The next pod, of which something else has the API server say that it tolerates all, is told from the one that is deleted.
func TestPutOnItAgain(t *testing.T) {
	t.Parallel()
	w := newWorld()
	client := w.client()
	f := of(t, client)
	f.IsOff = true
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	go func() {
		again := pod("dead", false)
		again.UID = "the next"
		for ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
			_, _ = client.CoreV1().Pods("podnas").Create(ctx, again, metav1.CreateOptions{})
		}
	}()
	if err := f.Run(ctx); err == nil {
		t.Error("it ends well")
	} else {
		contains(t, err.Error(), "the next pod, podnas-0, was put on dead again", "get pod podnas-0 -o yaml")
	}
}
