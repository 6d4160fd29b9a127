package controller

import (
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/podnas/podnas/internal/volume"
)

const (
	fullnessPeriod = 30 * time.Second
	// fullnessSlack is how many percent usage must fall below a mark before an event
	// says so: usage near a mark crosses it many times.
	fullnessSlack = 5
)

// fullness puts one event on a claim when its volume's usage exceeds a mark, in
// bytes or inodes, and one when it falls below it again.
type fullness struct {
	store  *volume.Store
	events record.EventRecorder
	log    *slog.Logger
	told   map[filling]int // the mark of the last event, in percent
	given  int             // how many snapshots that were deleted for room have been told
}

// filling is one of the two resources of a volume that can be used up.
type filling struct {
	volume string // its name
	inodes bool   // else bytes
}

func newFullness(store *volume.Store, events record.EventRecorder, log *slog.Logger) *fullness {
	return &fullness{store: store, events: events, log: log, told: map[filling]int{}}
}

// look checks all volumes.
func (f *fullness) look() {
	var given []volume.Snapshot
	given, f.given = f.store.Given(f.given)
	for i := range given {
		f.tellGiven(&given[i])
	}
	volumes := f.store.List()
	usages, err := f.store.Usages(volumes)
	if err != nil {
		f.log.Warn("volume: can't read the usage of volumes", "err", err)
		return
	}
	there := map[string]bool{}
	for _, v := range volumes {
		there[v.Name] = true
		if u, counted := usages[v.Name]; counted {
			f.tell(&v, false, u.Bytes, u.Limit.Bytes)
			if u.Limit.Inodes > 0 {
				f.tell(&v, true, u.Inodes, u.Limit.Inodes)
			}
		}
	}
	for way := range f.told {
		if !there[way.volume] {
			delete(f.told, way)
		}
	}
}

// tellGiven puts an event on the claim of a volume of which a scheduled snapshot was deleted, because the disk fills up.
func (f *fullness) tellGiven(s *volume.Snapshot) {
	v, err := f.store.Get(s.Volume)
	if err != nil || v.ID != s.VolumeID || v.Claim == nil {
		return
	}
	f.event(v.Claim, v1.EventTypeWarning, "SnapshotDeleted", fmt.Sprintf(
		"podnas's disk fills up, so the oldest scheduled snapshots are deleted: %s of volume %s. Remove files or snapshots, or make the disk larger", s.Name, v.Name))
}

func (f *fullness) event(c *volume.Claim, kind, reason, text string) {
	f.events.Event(&v1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: types.UID(c.UID),
	}, kind, reason, text)
}

// tell compares a volume's usage, of inodes or bytes, with the mark of the last
// event.
func (f *fullness) tell(v *volume.Volume, inodes bool, used, limit int64) {
	way := filling{v.Name, inodes}
	percent := volume.Percent(used, limit)
	mark, told := volume.Mark(percent), f.told[way]
	is, uses := fmt.Sprintf("%d%% full", percent), fmt.Sprintf("%s of %s are used", volume.FormatSize(used), volume.FormatSize(limit))
	if inodes {
		is, uses = fmt.Sprintf("at %d%% of its inodes", percent), fmt.Sprintf("%d of %d are used", used, limit)
	}
	kind, reason := v1.EventTypeWarning, "VolumeFillingUp"
	text := fmt.Sprintf("Volume %s is %s: %s. Remove files, or raise the claim's request", v.Name, is, uses)
	switch {
	case mark > told:
	case mark < told && percent < told-fullnessSlack:
		kind, reason = v1.EventTypeNormal, "VolumeHasRoom"
		text = fmt.Sprintf("Volume %s is %s again: %s", v.Name, is, uses)
	default:
		return
	}
	f.told[way] = mark
	f.log.Info("volume: "+reason, "volume", v.Name, "is", is, "uses", uses)
	if c := v.Claim; c != nil {
		f.event(c, kind, reason, text)
	}
}
