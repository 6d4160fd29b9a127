package control

import (
	"context"
	"net/http"
	"net/url"

	"github.com/podnas/podnas/internal/volume"
)

// restoreRequest asks for a volume to become what its snapshot has.
type restoreRequest struct {
	Volume string `json:"volume"`
	Name   string `json:"name"`
	Force  bool   `json:"force,omitempty"` // also while clients have files open
}

// StartRestore begins to make a volume what its snapshot has. Repeat GetRestore until it is done.
func (c *Client) StartRestore(ctx context.Context, of, name string, force bool) (volume.Restore, error) {
	return ask[volume.Restore](ctx, c, http.MethodPost, "/v1/restore", nil, restoreRequest{Volume: of, Name: name, Force: force})
}

// GetRestore returns the restore of a volume, or why it has failed.
func (c *Client) GetRestore(ctx context.Context, of string) (volume.Restore, error) {
	return ask[volume.Restore](ctx, c, http.MethodGet, "/v1/restore", url.Values{"volume": {of}}, nil)
}

// GiveUpRestore ends the restore of a volume to a snapshot: clients go on with what it has.
func (c *Client) GiveUpRestore(ctx context.Context, of, name string) (volume.Restore, error) {
	return ask[volume.Restore](ctx, c, http.MethodDelete, "/v1/restore", url.Values{"volume": {of}, "name": {name}}, nil)
}

func (s *Server) startRestore(r *http.Request) (any, error) {
	var request restoreRequest
	if err := decode(r, &request); err != nil {
		return nil, err
	}
	s.Log.Info("control: request to restore a volume", "volume", request.Volume, "snapshot", request.Name, "force", request.Force)
	return s.store().StartRestore(r.Context(), request.Volume, request.Name, request.Force)
}

func (s *Server) restore(r *http.Request) (any, error) {
	return s.store().GetRestore(r.URL.Query().Get("volume"))
}

func (s *Server) giveUpRestore(r *http.Request) (any, error) {
	of, name := r.URL.Query().Get("volume"), r.URL.Query().Get("name")
	s.Log.Info("control: request to give up the restore of a volume", "volume", of, "snapshot", name)
	return s.store().GiveUpRestore(r.Context(), of, name)
}
