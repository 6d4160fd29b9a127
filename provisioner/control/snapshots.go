package control

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/podnas/podnas/internal/volume"
)

// Snapshot is a snapshot's record with its current state.
type Snapshot struct {
	volume.Snapshot
	State string `json:"state"` // SnapshotReady or SnapshotTaking
	// VolumeDeleted is whether its volume is deleted.
	VolumeDeleted bool `json:"volumeDeleted,omitempty"`
	// ShownBy has the names of the volumes that show it. It is set if one snapshot is asked for.
	ShownBy []string `json:"shownBy,omitempty"`
	// Began is set, and Created only after the moment of the snapshot, while it is being taken.
	Began *time.Time `json:"began,omitempty"`
	// Total is what the volume uses, in bytes, while the snapshot is being taken; 0 if that is not known.
	Total int64 `json:"total,omitempty"`
}

// The states of snapshots.
const (
	SnapshotReady  = "ready"
	SnapshotTaking = "taking" // it is not complete
)

// snapshotRequest asks for a new snapshot.
type snapshotRequest struct {
	Volume string `json:"volume"`
	Name   string `json:"name,omitempty"` // empty: one by the date
}

// CreateSnapshot begins to take a snapshot. Repeat GetSnapshot until its state is SnapshotReady.
func (c *Client) CreateSnapshot(ctx context.Context, volume, name string) (Snapshot, error) {
	return ask[Snapshot](ctx, c, http.MethodPost, "/v1/snapshots", nil, snapshotRequest{Volume: volume, Name: name})
}

// Snapshots returns the snapshots of a volume, or of all if its name is empty, also those that are being taken.
func (c *Client) Snapshots(ctx context.Context, volume string) ([]Snapshot, error) {
	return ask[[]Snapshot](ctx, c, http.MethodGet, "/v1/snapshots", url.Values{"volume": {volume}}, nil)
}

// GetSnapshot returns one snapshot, or for some minutes why it could not be taken.
func (c *Client) GetSnapshot(ctx context.Context, volume, name string) (Snapshot, error) {
	return ask[Snapshot](ctx, c, http.MethodGet, "/v1/snapshot", url.Values{"volume": {volume}, "name": {name}}, nil)
}

// DeleteSnapshot deletes a snapshot, or ends the taking of it.
func (c *Client) DeleteSnapshot(ctx context.Context, volume, name string) error {
	_, err := ask[struct{}](ctx, c, http.MethodDelete, "/v1/snapshot", url.Values{"volume": {volume}, "name": {name}}, nil)
	return err
}

func (s *Server) createSnapshot(r *http.Request) (any, error) {
	var request snapshotRequest
	if err := decode(r, &request); err != nil {
		return nil, err
	}
	s.Log.Info("control: request to take a snapshot", "volume", request.Volume, "snapshot", request.Name)
	began, err := s.store().StartSnapshot(r.Context(), request.Volume, request.Name)
	if err != nil {
		return nil, err
	}
	return s.snapshotUnderWay(r.Context(), began), nil
}

func (s *Server) snapshots(r *http.Request) (any, error) {
	of := r.URL.Query().Get("volume")
	complete, err := s.store().Snapshots(of)
	if err != nil {
		return nil, err
	}
	list := []Snapshot{} // in JSON [], not null
	for _, found := range complete {
		list = append(list, completeSnapshot(found))
	}
	for _, going := range s.store().SnapshotsUnderWay() {
		if of == "" || of == going.Volume {
			list = append(list, s.snapshotUnderWay(r.Context(), going))
		}
	}
	return list, nil
}

func (s *Server) snapshot(r *http.Request) (any, error) {
	query := r.URL.Query()
	found, err := s.store().GetSnapshot(query.Get("volume"), query.Get("name"))
	var going *volume.TakingError
	switch {
	case errors.As(err, &going):
		return s.snapshotUnderWay(r.Context(), going.SnapshotUnderWay), nil
	case err != nil:
		return nil, err
	}
	said := completeSnapshot(found)
	said.ShownBy = s.store().ViewsOf(&found)
	return said, nil
}

func (s *Server) deleteSnapshot(r *http.Request) (any, error) {
	query := r.URL.Query()
	s.Log.Info("control: request to delete a snapshot", "volume", query.Get("volume"), "snapshot", query.Get("name"))
	return struct{}{}, s.store().DeleteSnapshot(r.Context(), query.Get("volume"), query.Get("name"))
}

func completeSnapshot(found volume.Snapshot) Snapshot {
	return Snapshot{Snapshot: found, State: SnapshotReady, VolumeDeleted: found.VolumeDeleted}
}

func (s *Server) snapshotUnderWay(ctx context.Context, u volume.SnapshotUnderWay) Snapshot {
	return Snapshot{Snapshot: u.Snapshot, State: SnapshotTaking, Began: &u.Began, Total: s.toCopy(ctx, u.Volume)}
}

// addSnapshots adds to volumes how many snapshots they have, and how their schedules are kept.
func (s *Server) addSnapshots(volumes []Volume) {
	uses := s.store().SnapshotUses()
	schedules := map[uint64]volume.Scheduled{}
	for _, kept := range s.store().Schedules() {
		schedules[kept.Volume.ID] = kept
	}
	for i := range volumes {
		v := &volumes[i]
		use := uses[v.ID]
		v.Snapshots, v.SnapshotBytes, v.SnapshotsReserved = use.Count, use.Bytes, use.Reserve
		if kept, ok := schedules[v.ID]; ok {
			v.Scheduled = &Scheduled{Last: kept.Last, Next: kept.Next, Problem: kept.Problem()}
		}
	}
}
