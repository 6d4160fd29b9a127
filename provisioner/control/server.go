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

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/latest"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/volume"
	"github.com/podnas/podnas/web"
)

const (
	// requestMax bounds a request's body, in bytes.
	requestMax = 64 << 10
	// requestTimeout is how long a request may wait for a volume that something
	// else works on. A copy takes no request's time.
	requestTimeout = time.Minute
	// stopTimeout is how long requests under way may take when podnas ends.
	stopTimeout = 5 * time.Second
	// diskLate is when a request that only tells something does without what the
	// disk has not answered.
	diskLate = 5 * time.Second
	// requestsMax bounds the requests of each kind that are being answered.
	requestsMax = 32
	// connsMax bounds connections. It is far more than all requests, so that those past
	// requestsMax are told so, rather than cut off.
	connsMax = 512
)

// Server answers commands. Provisioner, Process, Findings and Log are needed.
type Server struct {
	Provisioner *provisioner.Provisioner
	Process     Process
	// Findings are what podnas doctor tells.
	Findings *doctor.List
	// Users, if not nil, tells which pods have what mounted. Without a cluster
	// nobody knows.
	Users func(context.Context) ([]provisioner.User, error)
	// Clients, if not nil, tells who is connected.
	Clients func() []netip.Addr
	Log     *slog.Logger

	// What asks the disk and may hang, made by handler.
	disk   *latest.Value[Disk]
	usages *latest.Value[map[string]quota.Usage]
}

// Serve answers commands until ctx ends, finishes those under way and removes
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
	s.usages = latest.New(diskLate, func(context.Context) (map[string]quota.Usage, error) { return s.store().Usages() })
	// What changes something, or only asks, can't keep podnas doctor from saying why it hangs.
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
		"GET /v1/volumes":   s.list,
		"POST /v1/volumes":  s.create,
		"GET /v1/volume":    s.get,
		"PATCH /v1/volume":  s.resize,
		"DELETE /v1/volume": s.delete,
		"POST /v1/adopt":    s.adopt,
		"GET /v1/manifests": s.manifests,
		"GET " + doctorPath: s.doctor,
		"GET /v1/usage":     s.usage,
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

// reply is the one place where answers are written.
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

// decode reads a request. What this version does not know is refused: to pass it
// over would do something else than was asked for.
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
	volumes := []Volume{} // in JSON [], not null
	usages, err := s.usages.Get(r.Context(), 0)
	if err != nil {
		s.Log.Warn("control: can't read the usage of volumes", "err", err)
	}
	for _, v := range s.store().List() {
		volumes = append(volumes, s.served(v, usages[v.Name]))
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
	name := r.URL.Query().Get("name")
	v, err := s.store().Get(name)
	if err == nil {
		return s.describe(r.Context(), v), nil
	}
	for _, c := range s.store().Copies() {
		if c.Name == name {
			return copiedVolume(c), nil
		}
	}
	kept, keptErr := s.store().Kept()
	for _, k := range slices.Backward(kept) { // of several, the one that Adopt takes
		if k.Name == name {
			return keptVolume(k), nil
		}
	}
	return nil, errors.Join(err, keptErr)
}

// describe adds to a volume what is not in its record. What it uses is for
// people, and left out where it can't be read.
func (s *Server) describe(ctx context.Context, v volume.Volume) Volume {
	usages, err := s.usages.Get(ctx, 0)
	if err != nil {
		s.Log.Warn("control: can't read the usage of a volume", "volume", v.Name, "err", err)
	}
	return s.served(v, usages[v.Name])
}

// served is a volume that clients can mount, with what it uses, if that is known.
func (s *Server) served(v volume.Volume, u quota.Usage) Volume {
	by, reason := s.store().Quota(&v)
	d := Volume{Volume: v, State: Ready, Quota: &Quota{By: by, Reason: reason}}
	if u.Limit.Bytes > 0 {
		d.Used = &Used{Bytes: u.Bytes, Files: u.Inodes, Partial: u.Partial}
	}
	return d
}

func copiedVolume(c volume.Copy) Volume {
	return Volume{Volume: c.Volume, State: volume.Copying, Used: &Used{Bytes: uint64(c.Bytes), Files: uint64(c.Files)}}
}

func keptVolume(k volume.Kept) Volume {
	return Volume{Volume: k.Volume, State: k.State, Since: &k.Since}
}

// readSpec reads a CreateRequest, and what the store is to make of it.
func readSpec(r *http.Request) (request CreateRequest, spec volume.Spec, err error) {
	if err = decode(r, &request); err == nil {
		spec, err = request.spec()
	}
	return request, spec, err
}

func (s *Server) create(r *http.Request) (any, error) {
	_, spec, err := readSpec(r)
	if err != nil {
		return nil, err
	}
	v, err := s.store().Create(r.Context(), spec)
	if err != nil {
		return nil, err
	}
	return s.describe(r.Context(), v), nil
}

func (s *Server) adopt(r *http.Request) (any, error) {
	request, spec, err := readSpec(r)
	if err != nil {
		return nil, err
	}
	if request.saysNothing() {
		spec.Manifest = nil // a volume that was kept has its own
	}
	v, err := s.store().Adopt(r.Context(), spec)
	if errors.Is(err, fs.ErrNotExist) {
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
		if s.Process.Mode == Standalone {
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

func (s *Server) delete(r *http.Request) (any, error) {
	name := r.URL.Query().Get("name")
	if r.URL.Query().Get("kept") != "" {
		s.Log.Info("control: request to remove an archived or retained volume", "volume", name)
		return struct{}{}, s.store().Discard(r.Context(), name)
	}
	v, _ := s.store().Get(name) // Delete tells if there is none
	if c := v.Claim; c != nil && r.URL.Query().Get("force") == "" {
		advice := `delete the claim, and podnas applies the reclaim policy to the volume:
  kubectl -n %[2]s delete pvc %[3]s
If the claim does not exist any more, use --force to delete the volume`
		if s.Process.Mode == Standalone {
			advice = "remove the claim's file from the folder of claims, and podnas applies the reclaim policy to the volume. If the claim does not exist any more, use --force to delete the volume"
		}
		return nil, &Error{Code: Claimed, Message: fmt.Sprintf("volume %s belongs to the claim %s/%s: "+advice, name, c.Namespace, c.Name)}
	}
	s.Log.Info("control: request to delete a volume", "volume", name)
	return struct{}{}, s.store().Delete(r.Context(), name)
}
