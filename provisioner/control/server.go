package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/latest"
	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/internal/web"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/provisioner/controller"
	"github.com/podnas/podnas/quota"
)

const (
	// requestMax limits a request's body, in bytes.
	requestMax = 64 << 10
	// requestTimeout is how long a request may wait for a volume that is in use by
	// another operation. Requests do not wait for copies, nor for a directory of many files to be adopted.
	requestTimeout = time.Minute
	// stopTimeout is how long current requests may take when podnas ends.
	stopTimeout = 5 * time.Second
	// diskLate is how long a read-only request waits for the disk before it replies
	// without that information.
	diskLate = 5 * time.Second
	// sourceAge is how old the usage may be that the progress of a copy is compared with.
	sourceAge = 15 * time.Second
	// requestsMax limits concurrent requests of each kind.
	requestsMax = 32
	// connsMax limits connections. It is much larger than the limits of requests, so
	// that requests beyond requestsMax get an error instead of a closed connection.
	connsMax = 512
)

// Server executes commands. Provisioner, Process, Findings and Log are needed.
type Server struct {
	Provisioner *provisioner.Provisioner
	Process     process.Info
	// Findings are the results that podnas doctor shows.
	Findings *doctor.List
	// Users, if not nil, returns the pods that have volumes mounted. It is nil without
	// a cluster.
	Users func(context.Context) ([]controller.User, error)
	// Deleting, if not nil, returns the PersistentVolumes that podnas has yet to delete. It is
	// nil without a cluster.
	Deleting func(context.Context) ([]string, error)
	// Compared, if not nil, returns what the latest comparison of the disk with the cluster
	// found. It is nil without a cluster.
	Compared func() []volume.Finding
	// Clients, if not nil, returns the connected clients.
	Clients func() []netip.Addr
	// VolumeClients, if not nil, returns for each volume that is exported, by its ID, how many
	// clients have made a call in it in the last hour.
	VolumeClients func() map[uint64]int
	// Clients3, if not nil, returns the clients of version 3.
	Clients3 func() []process.Client3
	// NFS4 is zero where version 4.1 is not served.
	NFS4 NFS4
	Log  *slog.Logger

	// Values that need the disk and may hang, set by handler.
	disk   *latest.Value[Disk]
	usages *latest.Value[map[string]quota.Usage]
}

// Serve executes commands until ctx ends, finishes the current ones and removes
// the socket.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := web.Server{
		Handler: s.handler(), HeaderMax: requestMax, Write: requestTimeout + 10*time.Second,
		Conns: connsMax, ClientConns: connsMax, Stop: stopTimeout, Log: s.Log,
	}
	return h.Serve(ctx, l)
}

func (s *Server) handler() http.Handler {
	s.disk = latest.New(diskLate, s.lookAtDisk)
	s.usages = latest.New(diskLate, func(context.Context) (map[string]quota.Usage, error) { return s.store().Usages(s.store().List()) })
	// Each kind has its own limit, so that podnas doctor can still say why the others hang.
	changes := &underWay{max: requestsMax, kind: "changes"}
	questions := &underWay{max: requestsMax, kind: "questions"}
	doctors := &underWay{max: requestsMax, kind: "questions of podnas doctor"}
	kind := func(r *http.Request) *underWay {
		switch {
		case r.Method != http.MethodGet:
			return changes
		case r.URL.Path == doctorPath:
			return doctors
		}
		return questions
	}
	mux := http.NewServeMux()
	for pattern, answer := range map[string]func(*http.Request) (any, error){
		"GET /v1/volumes":     s.list,
		"POST /v1/volumes":    s.create,
		"GET /v1/volume":      s.get,
		"PATCH /v1/volume":    s.resize,
		"PATCH /v1/settings":  s.set,
		"DELETE /v1/volume":   s.delete,
		"POST /v1/adopt":      s.adopt,
		"POST /v1/archive":    s.archive,
		"GET /v1/manifests":   s.manifests,
		"GET /v1/snapshots":   s.snapshots,
		"POST /v1/snapshots":  s.createSnapshot,
		"GET /v1/snapshot":    s.snapshot,
		"DELETE /v1/snapshot": s.deleteSnapshot,
		"POST /v1/restore":    s.startRestore,
		"GET /v1/restore":     s.restore,
		"DELETE /v1/restore":  s.giveUpRestore,
		"GET " + doctorPath:   s.doctor,
		"GET /v1/usage":       s.mounted,
		"GET /v1/clients":     s.clients,
		"DELETE /v1/client":   s.evict,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
			defer cancel()
			r.Body = http.MaxBytesReader(w, r.Body, requestMax)
			end, err := kind(r).begin(pattern)
			if err != nil {
				s.reply(w, nil, err)
				return
			}
			defer end()
			said, err := answer(r.WithContext(ctx))
			s.reply(w, said, err)
		})
	}
	return mux
}

// reply writes all replies.
func (s *Server) reply(w http.ResponseWriter, answer any, err error) {
	status := http.StatusOK
	if err != nil {
		e := toError(err)
		status, answer = e.Code.status(), e
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.Log.Debug("control: the answer was not read", "err", err)
	}
}

// decode decodes a request. It refuses fields that this version does not know,
// because ignoring them would do something else than requested.
func decode(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return &Error{Code: Invalid, Message: fmt.Sprintf("the running podnas does not understand the request, it may be another version: %v", err)}
	}
	return nil
}

func (s *Server) store() *volume.Store { return s.Provisioner.Store }

func (s *Server) list(r *http.Request) (any, error) {
	volumes, err := s.listVolumes(r)
	if err != nil {
		return nil, err
	}
	s.addSnapshots(volumes)
	return volumes, nil
}

func (s *Server) listVolumes(r *http.Request) ([]Volume, error) {
	volumes := []Volume{} // in JSON [], not null
	usages, err := s.usages.Get(r.Context(), 0)
	if err != nil {
		s.Log.Warn("control: can't read the usage of volumes", "err", err)
	}
	found, clients, marking := s.compared(), s.volumeClients(), s.store().Marking()
	for _, v := range s.store().Served() {
		volumes = append(volumes, s.served(v, usages[v.Name], found[v.Name], clients, marking))
	}
	for _, u := range s.store().Unserved() {
		volumes = append(volumes, unservedVolume(u))
	}
	for _, c := range s.store().Copies() {
		volumes = append(volumes, copiedVolume(c))
	}
	if r.URL.Query().Get("all") == "" {
		return volumes, nil
	}
	kept, err := s.store().Kept()
	for _, k := range kept {
		volumes = append(volumes, keptVolume(k))
	}
	return volumes, err
}

func (s *Server) get(r *http.Request) (any, error) {
	v, err := s.find(r.Context(), r.URL.Query().Get("name"))
	if err != nil {
		return nil, err
	}
	list := []Volume{v}
	s.addSnapshots(list)
	return list[0], nil
}

// find describes a volume in any state.
func (s *Server) find(ctx context.Context, name string) (Volume, error) {
	for _, u := range s.store().Unserved() {
		if u.Name == name {
			return unservedVolume(u), nil
		}
	}
	v, err := s.store().Get(name)
	if err == nil {
		return s.describe(ctx, v), nil
	}
	for _, c := range s.store().Copies() {
		if c.Name == name {
			return copiedVolume(c), nil
		}
	}
	kept, keptErr := s.store().Kept()
	for _, k := range slices.Backward(kept) { // of several, the one that Adopt would use
		if k.Name == name {
			return keptVolume(k), nil
		}
	}
	return Volume{}, errors.Join(err, keptErr)
}

// describe adds a volume's current state to its record. Its usage is for people,
// and omitted if it can't be read.
func (s *Server) describe(ctx context.Context, v volume.Volume) Volume {
	usages, err := s.usages.Get(ctx, 0)
	if err != nil {
		s.Log.Warn("control: can't read the usage of a volume", "volume", v.Name, "err", err)
	}
	return s.served(v, usages[v.Name], s.compared()[v.Name], s.volumeClients(), s.store().Marking())
}

func (s *Server) volumeClients() map[uint64]int {
	if s.VolumeClients == nil {
		return nil
	}
	return s.VolumeClients()
}

// compared returns the findings of the comparison with the cluster, by volume.
func (s *Server) compared() map[string]volume.Finding {
	found := map[string]volume.Finding{}
	if s.Compared != nil {
		for _, f := range s.Compared() {
			found[f.Volume] = f
		}
	}
	return found
}

// served describes a volume that clients can mount, with its usage if known.
func (s *Server) served(v volume.Volume, u quota.Usage, f volume.Finding, clients map[uint64]int, marking map[string]error) Volume {
	d := newVolume(v, volume.Ready)
	d.Problem, d.Fix = f.Problem, f.Fix
	if !v.View { // in which nothing can be written
		by, reason := s.store().Quota(&v)
		d.Quota = &Quota{By: by, Reason: reason}
	}
	if u.Limit.Bytes > 0 {
		d.Used = &u
	}
	if err, ok := marking[v.Name]; ok {
		d.Assigning = &Assigning{}
		if err != nil {
			d.Assigning.Problem = err.Error()
		}
	}
	if n, ok := clients[v.ID]; ok {
		d.Clients = &n
	}
	return d
}

func unservedVolume(u volume.Unserved) Volume {
	d := newVolume(u.Volume, u.State)
	d.Problem, d.Fix = u.Problem, u.Fix
	return d
}

func copiedVolume(c volume.Copy) Volume {
	d := newVolume(c.Volume, volume.Copying)
	d.Used = &quota.Usage{Bytes: c.Bytes, Inodes: c.Files}
	return d
}

func keptVolume(k volume.Kept) Volume {
	d := newVolume(k.Volume, k.State)
	d.Since = &k.Since
	return d
}

func newVolume(v volume.Volume, state string) Volume {
	d := Volume{Volume: v, State: state}
	if m, err := provisioner.ManifestOf(v); err == nil { // of a damaged record it is not known
		d.StorageClass = m.StorageClassName
	}
	return d
}

// readSpec decodes a CreateRequest, and returns its Spec too.
func (s *Server) readSpec(r *http.Request) (request CreateRequest, spec volume.Spec, err error) {
	if err = decode(r, &request); err == nil {
		spec, err = request.spec(s.Provisioner)
	}
	return request, spec, err
}

func (s *Server) create(r *http.Request) (any, error) {
	_, spec, err := s.readSpec(r)
	if err != nil {
		return nil, err
	}
	v, err := s.store().Create(r.Context(), spec)
	var copying *volume.CopyingError
	switch {
	case errors.As(err, &copying):
		e := toError(err)
		e.Progress.Total = s.toCopyOf(r.Context(), copying)
		return nil, e
	case err != nil:
		return nil, err
	}
	return s.describe(r.Context(), v), nil
}

// toCopyOf is how many bytes are copied in all, 0 if that is unknown.
func (s *Server) toCopyOf(ctx context.Context, copying *volume.CopyingError) int64 {
	if copying.Snapshot == "" {
		return s.toCopy(ctx, copying.Source)
	}
	from, _ := s.store().GetSnapshot(copying.Source, copying.Snapshot)
	return from.Bytes
}

// toCopy is how many bytes a volume has, 0 if that is unknown. Who waits for a copy asks each second, so it may be
// old: it is counted with those of all others.
func (s *Server) toCopy(ctx context.Context, source string) int64 {
	usages, err := s.usages.Get(ctx, sourceAge)
	if u := usages[source]; err == nil && !u.Partial {
		return u.Bytes
	}
	return 0
}

func (s *Server) adopt(r *http.Request) (any, error) {
	request, spec, err := s.readSpec(r)
	if err != nil {
		return nil, err
	}
	spec.Restore = func(kept volume.Volume) (json.RawMessage, error) { return request.restored(kept, spec.Manifest) }
	v, err := s.store().Adopt(r.Context(), spec)
	if errors.Is(err, volume.ErrNotFound) && errors.Is(err, fs.ErrNotExist) {
		return nil, &Error{Code: NotFound, Message: fmt.Sprintf(
			"there is no archived or retained volume %s, and the disk has no directory %s", spec.Name, cmp.Or(spec.Path, spec.Name))}
	}
	if err != nil {
		return nil, err
	}
	return s.describe(r.Context(), v), nil
}

func (s *Server) resize(r *http.Request) (any, error) {
	var request resizeRequest
	if err := decode(r, &request); err != nil {
		return nil, err
	}
	name := r.URL.Query().Get("name")
	v, err := s.store().Get(name)
	if err != nil {
		return nil, err
	}
	if c := v.Claim; c != nil && !request.Force {
		advice := `raise the claim's request, and podnas resizes the volume:
  kubectl -n %[2]s patch pvc %[3]s -p '{"spec":{"resources":{"requests":{"storage":"%[4]s"}}}}'
If you can't, use --force to resize only the volume`
		if s.Process.Mode == process.Standalone {
			advice = "set spec.resources.requests.storage to %[4]s in the claim's file, and podnas resizes the volume. If you can't, use --force to resize only the volume"
		}
		return nil, &Error{Code: Claimed, Message: fmt.Sprintf("volume %s belongs to the claim %s/%s: "+advice,
			name, c.Namespace, c.Name, resource.NewQuantity(request.Size, resource.BinarySI))}
	}
	if v, err = s.store().Resize(r.Context(), name, request.Size, request.BytesPerInode); err != nil {
		return nil, err
	}
	return s.describe(r.Context(), v), nil
}

func (s *Server) set(r *http.Request) (any, error) {
	var to settings
	if err := decode(r, &to); err != nil {
		return nil, err
	}
	name := r.URL.Query().Get("name")
	v, err := s.store().Get(name)
	if err == nil && to.SnapshotReserve != nil {
		s.Log.Info("control: request to change a volume", "volume", name, "snapshotReserve", *to.SnapshotReserve)
		v, err = s.store().SetSnapshotReserve(r.Context(), name, *to.SnapshotReserve)
	}
	if err == nil && to.Schedule != nil {
		s.Log.Info("control: request to change a volume", "volume", name, "snapshots", to.Schedule)
		v, err = s.store().SetSchedule(r.Context(), name, *to.Schedule)
	}
	if err != nil {
		return nil, err
	}
	return s.describe(r.Context(), v), nil
}

func (s *Server) delete(r *http.Request) (any, error) {
	name := r.URL.Query().Get("name")
	if r.URL.Query().Get("kept") != "" {
		s.Log.Info("control: request to remove an archived or retained volume", "volume", name)
		return struct{}{}, s.store().Discard(r.Context(), name)
	}
	if c := s.claimOf(r); c != nil {
		advice := `delete the claim, and podnas applies the reclaim policy to the volume:
  kubectl -n %[2]s delete pvc %[3]s
If the claim does not exist any more, use --force to delete the volume`
		if s.Process.Mode == process.Standalone {
			advice = "remove the claim's file from the folder of claims, and podnas applies the reclaim policy to the volume. If the claim does not exist any more, use --force to delete the volume"
		}
		return nil, &Error{Code: Claimed, Message: fmt.Sprintf("volume %s belongs to the claim %s/%s: "+advice, name, c.Namespace, c.Name)}
	}
	s.Log.Info("control: request to delete a volume", "volume", name)
	return struct{}{}, s.store().Delete(r.Context(), name)
}

// archive is not delete with a parameter: a podnas that does not know this path refuses it, and one that does
// not know a parameter would remove the files.
func (s *Server) archive(r *http.Request) (any, error) {
	name := r.URL.Query().Get("name")
	if c := s.claimOf(r); c != nil {
		return nil, &Error{Code: Claimed, Message: fmt.Sprintf(
			"volume %s belongs to the claim %s/%s, whose pods would get errors: use --force to archive the volume all the same, and then delete the claim", name, c.Namespace, c.Name)}
	}
	s.Log.Info("control: request to archive a volume", "volume", name)
	return struct{}{}, s.store().Archive(r.Context(), name)
}

// claimOf returns the claim of the volume that a request is about, nil if there is none or the request
// has force.
func (s *Server) claimOf(r *http.Request) *volume.Claim {
	if r.URL.Query().Get("force") != "" {
		return nil
	}
	v, _ := s.store().Get(r.URL.Query().Get("name")) // who needs the volume gets the error
	return v.Claim
}
