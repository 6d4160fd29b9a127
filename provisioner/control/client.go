package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/internal/volume"
)

const (
	// clientTimeout is longer than any request may take in the server.
	clientTimeout = requestTimeout + 10*time.Second
	// answerMax limits a reply: a thousand bytes for each of 100,000 volumes.
	answerMax = 100 << 20
)

// Client calls the podnas that serves a disk. If podnas refuses a request, the
// error is an *Error; if none is running, a *NotReachedError.
type Client struct {
	http http.Client
}

// NewClient returns a Client for the disk at root.
func NewClient(root string) *Client {
	return &Client{http.Client{
		Timeout: clientTimeout,
		Transport: &http.Transport{
			DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, root) },
			DisableKeepAlives: true, // a command makes few requests
		},
	}}
}

// List returns the volumes, sorted by name; if all is set, including archived and
// retained ones.
func (c *Client) List(ctx context.Context, all bool) ([]Volume, error) {
	query := url.Values{}
	if all {
		query.Set("all", "true")
	}
	return ask[[]Volume](ctx, c, http.MethodGet, "/v1/volumes", query, nil)
}

// Get returns one volume, which may be archived or retained.
func (c *Client) Get(ctx context.Context, name string) (Volume, error) {
	return ask[Volume](ctx, c, http.MethodGet, "/v1/volume", url.Values{"name": {name}}, nil)
}

// Create creates a volume. While it is being copied, the error has the code
// Copying and the progress; repeat the call.
func (c *Client) Create(ctx context.Context, r CreateRequest) (Volume, error) {
	return ask[Volume](ctx, c, http.MethodPost, "/v1/volumes", nil, r)
}

// Adopt turns an existing directory on the disk into a volume.
func (c *Client) Adopt(ctx context.Context, r CreateRequest) (Volume, error) {
	return ask[Volume](ctx, c, http.MethodPost, "/v1/adopt", nil, r)
}

// Resize increases the size of a volume and its inode limit, which is one inode per
// bytesPerInode; 0 keeps the ratio. A volume that belongs to a claim is only
// resized with force.
func (c *Client) Resize(ctx context.Context, name string, size, bytesPerInode int64, force bool) (Volume, error) {
	return ask[Volume](ctx, c, http.MethodPatch, "/v1/volume", url.Values{"name": {name}}, resizeRequest{Size: size, BytesPerInode: bytesPerInode, Force: force})
}

// SetSnapshotReserve changes which part of what a volume uses is promised for each further snapshot, in percent.
func (c *Client) SetSnapshotReserve(ctx context.Context, name string, percent int) (Volume, error) {
	return ask[Volume](ctx, c, http.MethodPatch, "/v1/settings", url.Values{"name": {name}}, settings{SnapshotReserve: &percent})
}

// SetSchedule changes which snapshots of a volume are taken without being asked for.
func (c *Client) SetSchedule(ctx context.Context, name string, to volume.Schedule) (Volume, error) {
	return ask[Volume](ctx, c, http.MethodPatch, "/v1/settings", url.Values{"name": {name}}, settings{Schedule: &to})
}

// Delete deletes a volume, according to its OnDelete. A volume that belongs to a
// claim is only deleted with force.
func (c *Client) Delete(ctx context.Context, name string, force bool) error {
	query := url.Values{"name": {name}}
	if force {
		query.Set("force", "true")
	}
	_, err := ask[struct{}](ctx, c, http.MethodDelete, "/v1/volume", query, nil)
	return err
}

// Archive deletes a volume and archives its files, whatever its OnDelete. A volume that belongs to a
// claim is only archived with force.
func (c *Client) Archive(ctx context.Context, name string, force bool) error {
	query := url.Values{"name": {name}}
	if force {
		query.Set("force", "true")
	}
	_, err := ask[struct{}](ctx, c, http.MethodPost, "/v1/archive", query, nil)
	return err
}

// Discard removes the files of an archived or retained volume.
func (c *Client) Discard(ctx context.Context, name string) error {
	_, err := ask[struct{}](ctx, c, http.MethodDelete, "/v1/volume", url.Values{"name": {name}, "kept": {"true"}}, nil)
	return err
}

// Manifests returns the PersistentVolumes of the named volumes, or of all volumes.
func (c *Client) Manifests(ctx context.Context, names ...string) ([]Manifest, error) {
	return ask[[]Manifest](ctx, c, http.MethodGet, "/v1/manifests", url.Values{"name": names}, nil)
}

// Doctor runs podnas's checks.
func (c *Client) Doctor(ctx context.Context) (Report, error) {
	return ask[Report](ctx, c, http.MethodGet, doctorPath, nil, nil)
}

// Mounted returns where volumes are mounted.
func (c *Client) Mounted(ctx context.Context) (Mounted, error) {
	return ask[Mounted](ctx, c, http.MethodGet, "/v1/usage", nil, nil)
}

// Clients returns the clients of all versions, and who has what by NFSv4.1.
func (c *Client) Clients(ctx context.Context) (process.Clients, error) {
	return ask[process.Clients](ctx, c, http.MethodGet, "/v1/clients", nil, nil)
}

// NFS4 returns who has what of a volume by NFSv4.1.
func (c *Client) NFS4(ctx context.Context, volume string) (process.NFS4, error) {
	return ask[process.NFS4](ctx, c, http.MethodGet, "/v1/clients", url.Values{"volume": {volume}}, nil)
}

// Evict removes a client of NFSv4, and returns what it was.
func (c *Client) Evict(ctx context.Context, name string) (process.Client, error) {
	return ask[process.Client](ctx, c, http.MethodDelete, "/v1/client", url.Values{"name": {name}}, nil)
}

// ask sends a request and decodes the reply.
func ask[Answer any](ctx context.Context, c *Client, method, path string, query url.Values, request any) (Answer, error) {
	var answer Answer
	data, status, err := c.do(ctx, method, path, query, request)
	if err != nil {
		return answer, err
	}
	if status == http.StatusOK {
		if err := json.Unmarshal(data, &answer); err != nil {
			return answer, fmt.Errorf("read podnas's answer: %w", err)
		}
		return answer, nil
	}
	said := &Error{}
	if err := json.Unmarshal(data, said); err != nil || said.Code == "" {
		return answer, fmt.Errorf("the running podnas does not support this, it may be another version: it answered %q (status %d)", bytes.TrimSpace(data), status)
	}
	return answer, said
}

// do sends a request, and returns the reply's body and status.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, request any) ([]byte, int, error) {
	var body io.Reader
	if request != nil {
		data, err := json.Marshal(request)
		if err != nil {
			return nil, 0, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(data)
	}
	target := url.URL{Scheme: "http", Host: "podnas", Path: path, RawQuery: query.Encode()}
	r, err := http.NewRequestWithContext(ctx, method, target.String(), body)
	if err != nil {
		return nil, 0, err
	}
	response, err := c.http.Do(r)
	if err != nil {
		return nil, 0, clientError(ctx, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, answerMax))
	if err != nil {
		return nil, 0, clientError(ctx, err)
	}
	return data, response.StatusCode, nil
}

// clientError explains why there was no reply.
func clientError(ctx context.Context, err error) error {
	var unreached *NotReachedError
	if errors.As(err, &unreached) {
		return unreached
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("podnas did not answer within %s; it may still be working on this, see its log", clientTimeout)
	}
	return fmt.Errorf("podnas closed the connection before it answered: it has ended, or more than %d commands wait for it; see its log: %w", connsMax, err)
}
