package snapshots

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podnas/podnas/provisioner/internal/fixture"
)

// A podnas that may have lost its disk lets no content go whose snapshot it does not know, and tells nobody that there is none.
func TestNothingIsToldOfALostDisk(t *testing.T) {
	for name, deleted := range map[string]bool{"a content": false, "one that is being deleted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, t.TempDir())
			ct := c.taken()
			c.must(c.store.DeleteSnapshot(t.Context(), "v", string(testUID))) // the other podnas has it
			no := false
			ct.Status.Ready = &no
			if now := metav1.Now(); deleted {
				ct.DeletionTimestamp, ct.Annotations = &now, map[string]string{beingDeleted: "yes"}
			}
			c.SureOfDisk = fixture.LostDisk
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := c.syncContent(ctx, ct.Name); !errors.As(err, new(waiting)) {
				t.Errorf("it ends with %v", err)
			}
			now, err := c.getContent(t.Context(), ct.Name)
			c.must(err)
			if !slices.Contains(now.Finalizers, contentFinalizer) || now.Status.Error != nil {
				t.Errorf("the content is %+v", now)
			}
			if n := len(c.events.Events); n > 0 {
				t.Errorf("%d events", n)
			}
			c.SureOfDisk = fixture.OwnDisk
			if err := c.syncContent(t.Context(), ct.Name); (err == nil) != deleted {
				t.Errorf("with the disk it ends with %v", err)
			}
			now, err = c.getContent(t.Context(), ct.Name)
			c.must(err)
			if deleted == slices.Contains(now.Finalizers, contentFinalizer) || deleted != (len(c.events.Events) == 0) {
				t.Errorf("with the disk there are %d events, and the content is %+v", len(c.events.Events), now)
			}
		})
	}
}
