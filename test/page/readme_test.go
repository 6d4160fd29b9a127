//go:build page && picture

package page_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/test/conformance/nfstest"
)

// demo is what the picture shows: claims, how full they are, and the clients of each.
var demo = []struct {
	claim   string
	size    int // MiB
	percent int
	clients []string
	pace    float64 // calls a second, of each client
}{
	{"ci/build-cache", 128, 88, []string{"10.0.0.12", "10.0.0.13", "10.0.0.14"}, 25},
	{"team/documents", 256, 63, []string{"10.0.0.11", "10.0.0.12"}, 8},
	{"media/photos", 200, 35, []string{"10.0.0.11"}, 12},
	{"web/uploads", 512, 22, []string{"10.0.0.13", "10.0.0.14"}, 15},
	{"lab/results", 64, 9, nil, 0},
}

// TestPictureForReadme takes the picture in README.md. It takes as long as the charts
// are wide, and wants the addresses of the clients to be this machine's.
func TestPictureForReadme(t *testing.T) {
	manifests := "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: podnas}\nprovisioner: podnas.io/nfs\n"
	for _, d := range demo {
		namespace, name, _ := strings.Cut(d.claim, "/")
		manifests += fmt.Sprintf("---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: %s, namespace: %s}\nspec:\n"+
			"  storageClassName: podnas\n  accessModes: [ReadWriteMany]\n  resources: {requests: {storage: %dMi}}\n", name, namespace, d.size)
	}
	p := start(t, manifests)
	for _, d := range demo {
		client, err := dialFrom(t.Context(), "10.0.0.11", p.nfs)
		mustDo(t, err)
		write(t, client, "/"+p.volume(t, d.claim), d.size<<20/100*d.percent)
		client.Close()
	}
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel()
	for _, d := range demo {
		for _, from := range d.clients {
			volume := p.volume(t, d.claim)
			working.Go(func() { work(ctx, t, p.nfs, from, "/"+volume, d.pace) })
		}
	}
	time.Sleep(5*time.Minute + 20*time.Second)
	p.reset(0)
	for _, look := range []struct {
		file, path, size string
		args             []string
	}{
		{"page.png", "/", "1200,1190", nil},
		{"page-dark.png", "/", "1200,2400", dark()},
		{"volume.png", "/volume/" + p.volume(t, demo[0].claim), "1200,1100", nil},
		{"volume-dark-390.png", "/volume/" + p.volume(t, demo[0].claim), "390,1800", dark()},
	} {
		_, console := chromium(t, append(look.args, "--screenshot="+filepath.Join(os.Getenv("PAGE_PICTURES"), look.file), "--window-size="+look.size, p.proxy.URL+look.path)...)
		noComplaints(t, console)
	}
	shrink(t, filepath.Join(os.Getenv("PAGE_PICTURES"), "page.png"))
}

// shrink leaves a picture the 256 colors that are most of it.
func shrink(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	mustDo(t, err)
	picture, err := png.Decode(bytes.NewReader(data))
	mustDo(t, err)
	bounds, count := picture.Bounds(), map[color.Color]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[picture.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return count[b] - count[a] })
	small := image.NewPaletted(bounds, colors[:min(len(colors), 256)])
	draw.Draw(small, bounds, picture, bounds.Min, draw.Src)
	var out bytes.Buffer
	mustDo(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small))
	mustDo(t, os.WriteFile(file, out.Bytes(), 0o644))
}

func dark() []string {
	return []string{"--force-dark-mode", "--blink-settings=preferredColorScheme=0"}
}

// dialFrom connects from an address of this machine.
func dialFrom(ctx context.Context, from, nfs string) (*nfstest.Client, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(ctx, "tcp", nfs)
	if err != nil {
		return nil, fmt.Errorf("connect from %s: %w", from, err)
	}
	client := rpc.NewClient(conn)
	return nfstest.NewClient(client, client), nil
}

// work reads and writes a little, now more and now less, until ctx ends.
func work(ctx context.Context, t *testing.T, nfs, from, export string, pace float64) {
	client, err := dialFrom(ctx, from, nfs)
	if err != nil {
		t.Error(err)
		return
	}
	defer client.Close()
	mnt, err := client.Mount(ctx, export)
	if err != nil {
		t.Error(err)
		return
	}
	file, err := client.Lookup(ctx, mnt.Handle, "file")
	if err != nil || file.Status != nfs3.OK {
		t.Error(file.Status, err)
		return
	}
	began, rng := time.Now(), rand.New(rand.NewPCG(uint64(len(export)), uint64(from[len(from)-1])))
	for ctx.Err() == nil {
		minutes := time.Since(began).Minutes()
		rate := pace * (1.2 + math.Sin(2*math.Pi*minutes/2.2+float64(from[len(from)-1])))
		offset := uint64(rng.IntN(64)) * 64 << 10
		switch n := rng.IntN(20); {
		case n < 9:
			_, err = client.Read(ctx, file.Object, offset, 64<<10)
		case n < 12:
			_, err = client.Write(ctx, file.Object, offset, nfs3.Unstable, make([]byte, 32<<10))
		case n == 12:
			_, err = client.Commit(ctx, file.Object, 0, 0)
		case n < 16:
			_, err = client.Lookup(ctx, mnt.Handle, "file")
		default:
			_, err = client.Getattr(ctx, file.Object)
		}
		if err != nil && ctx.Err() == nil {
			t.Error(err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(rng.ExpFloat64() / rate * float64(time.Second))):
		}
	}
}
