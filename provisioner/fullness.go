package provisioner

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/podnas/podnas/volume"
)

const (
	fullnessPeriod = 30 * time.Second
	// fullnessSlack is how far below a mark use must fall before that is told, in
	// percent: who is about to cross it does so many times.
	fullnessSlack = 5
)

// fullness tells a claim, by an event, when its volume fills up past a mark, and
// when there is room again: once each way.
type fullness struct {
	store  *volume.Store
	events record.EventRecorder
	log    *slog.Logger
	told   map[string]int // by volume: the mark that was told last, in percent
}

func newFullness(store *volume.Store, events record.EventRecorder, log *slog.Logger) *fullness {
	return &fullness{store: store, events: events, log: log, told: map[string]int{}}
}

// run looks at all volumes until ctx ends.
func (f *fullness) run(ctx context.Context) {
	for {
		f.look()
		if sleep(ctx, fullnessPeriod) != nil {
			return
		}
	}
}

func (f *fullness) look() {
	usages, err := f.store.Usages()
	if err != nil {
		f.log.Warn("volume: what volumes use is not known", "err", err)
		return
	}
	there := map[string]bool{}
	for _, v := range f.store.List() {
		there[v.Name] = true
		if u, counted := usages[v.Name]; counted {
			f.tell(&v, int64(u.Bytes), int64(u.Limit))
		}
	}
	for name := range f.told {
		if !there[name] {
			delete(f.told, name)
		}
	}
}

// tell compares what a volume uses with what was told.
func (f *fullness) tell(v *volume.Volume, used, limit int64) {
	percent := int(100 * float64(used) / float64(limit))
	mark := 0
	for _, m := range [...]int{85, 95} {
		if percent >= m {
			mark = m
		}
	}
	told := f.told[v.Name]
	kind, reason := v1.EventTypeWarning, "VolumeFillingUp"
	text := fmt.Sprintf("Volume %s is %d%% full: %s of %s are used. Remove files, or raise the claim's request", v.Name, percent, volume.FormatSize(used), volume.FormatSize(limit))
	switch {
	case mark > told:
	case mark < told && percent < told-fullnessSlack:
		kind, reason = v1.EventTypeNormal, "VolumeHasRoom"
		text = fmt.Sprintf("Volume %s is %d%% full again: %s of %s are used", v.Name, percent, volume.FormatSize(used), volume.FormatSize(limit))
	default:
		return
	}
	f.told[v.Name] = mark
	f.log.Info("volume: "+reason, "volume", v.Name, "used", volume.FormatSize(used), "size", volume.FormatSize(limit))
	if c := v.Claim; c != nil {
		f.events.Event(&v1.ObjectReference{
			APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: types.UID(c.UID),
		}, kind, reason, text)
	}
}
