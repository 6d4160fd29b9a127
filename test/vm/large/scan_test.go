//go:build vm

package large_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/space"
)

const (
	million  = 1_000_000
	perDir   = 1_000
	withData = 200 // every so many files holds a block
	// scanMemory is what a scan may take, in bytes, besides what the calls do.
	scanMemory = 16 << 20
)

// TestMillionFiles counts a volume of a million files, as the server does at its
// start where the kernel can't: calls are answered meanwhile, the limit holds on
// what was there at the last end, the log says how far it is, memory stays small, and the
// result is what du finds.
func TestMillionFiles(t *testing.T) {
	dir := filepath.Join(roomy(t), "volume")
	begin := time.Now()
	makeMillion(t, dir)
	t.Logf("%d files made in %.1f s in %s", million, time.Since(begin).Seconds(), dir)
	holds, inodes := du(t, dir)
	limit := holds + 64<<20

	said := &lines{}
	table, account := &exports.Table{Log: slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))}, space.NewAccount(quota.Limit{Bytes: limit})
	marks := t.TempDir()
	table.KeepMarks(marks)
	if err := os.WriteFile(filepath.Join(marks, "1"), fmt.Appendf(nil, "%020d %020d\n", holds, inodes), 0o600); err != nil {
		t.Fatal(err)
	}
	before := heap()
	begin = time.Now()
	if err := table.Export(exports.Exported{ID: 1, Path: "/volume", Dir: dir, Options: exports.Options{Async: true}, Account: account}); err != nil {
		t.Fatal(err)
	}
	addr, stop := serveTable(t, table)
	defer stop()
	callers, closeAll := dial(t, addr, 1)
	defer closeAll()
	c := callers[0]
	file := create(t, c, "file")

	// Nothing past the limit comes in, though what is there is not counted yet.
	filled := fill(t, c, file)
	if !account.Usage().Partial {
		t.Error("the scan was complete before the volume was filled")
	}
	if filled > limit-holds || filled < limit-holds-1<<20 {
		t.Errorf("%d bytes were taken in while the scan went on; the limit is %d, and %d were there", filled, limit, holds)
	}
	truncate(t, c, file)

	most := uint64(0)
	beside := load(t, c, file, func() bool {
		most = max(most, heap())
		return account.Usage().Partial && time.Since(begin) < 5*time.Minute
	})
	took := time.Since(begin)
	u := account.Usage()
	if u.Partial {
		t.Fatal("the scan does not end")
	}
	if bytes, n := du(t, dir); u.Bytes != bytes || u.Inodes != n || n != inodes+1 {
		t.Errorf("counted are %d bytes in %d inodes, du finds %d in %d", u.Bytes, u.Inodes, bytes, n)
	}
	if took > 15*time.Second && !strings.Contains(said.String(), "counting what a volume uses") {
		t.Errorf("in %v the log has not said how far the scan is:\n%s", took, said)
	}
	if !strings.Contains(said.String(), "counted what a volume uses") {
		t.Errorf("the log has not said what was counted:\n%s", said)
	}
	if more := int64(most) - int64(before); more > scanMemory {
		t.Errorf("the scan took %d bytes of memory, want %d at most", more, scanMemory)
	}
	alone := load(t, c, file, func() func() bool {
		end := time.Now().Add(2 * time.Second)
		return func() bool { return time.Now().Before(end) }
	}())
	t.Logf("%d inodes scanned in %.1f s, in %d KiB more of heap", u.Inodes, took.Seconds(), (int64(most)-int64(before))>>10)
	t.Logf("calls beside the scan: %v", beside)
	t.Logf("calls alone:           %v", alone)
	if len(beside) < 100 {
		t.Errorf("only %d calls were answered in %v", len(beside), took)
	}
	if worst := beside[len(beside)-1]; worst > 2*time.Second {
		t.Errorf("a call took %v beside the scan", worst)
	}

	// When all is known the limit holds for all of it.
	if filled := fill(t, c, file); filled > limit-holds || filled < limit-holds-1<<20 {
		t.Errorf("%d bytes were taken in after the scan; the limit is %d, and %d were there", filled, limit, holds)
	}
	if room, err := c.Fsstat(t.Context(), c.root); err != nil || room.TBytes != uint64(limit) || room.ABytes > 64<<10 {
		t.Errorf("df shows %+v, %v", room, err)
	}
}

// roomy is a directory for a million files: in memory, where there is room, because
// the disk takes a minute to make them.
func roomy(t *testing.T) string {
	t.Helper()
	const memory = "/dev/shm"
	var st syscall.Statfs_t
	const tmpfs = 0x01021994
	if err := syscall.Statfs(memory, &st); err != nil || st.Type != tmpfs || st.Ffree < million*5/4 || st.Bavail*uint64(st.Bsize) < 256<<20 {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "podnas-million-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func makeMillion(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	next := make(chan int, million/perDir)
	for i := range million / perDir {
		next <- i
	}
	close(next)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for i := range next {
				if err := makeThousand(filepath.Join(dir, fmt.Sprint("d", i))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func makeThousand(dir string) error {
	if err := os.Mkdir(dir, 0o777); err != nil {
		return err
	}
	for i := range perDir {
		// Not by os.WriteFile, which takes twice the time.
		fd, err := syscall.Open(filepath.Join(dir, fmt.Sprint("f", i)), syscall.O_CREAT|syscall.O_WRONLY|syscall.O_CLOEXEC, 0o666)
		if err != nil {
			return err
		}
		if i%withData == 0 {
			_, err = syscall.Write(fd, []byte("some data"))
		}
		if closeErr := syscall.Close(fd); err == nil {
			err = closeErr
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// du is what du(1) finds in a directory, and what the inodes themselves are counted for.
func du(t *testing.T, dir string) (bytes, inodes int64) {
	t.Helper()
	price := int64(1024) // on a tmpfs, or btrfs
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	switch st.Type {
	case 0xef53: // ext4
		price = 256
	case 0x58465342: // XFS
		price = 512
	}
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes, inodes = bytes+info.Sys().(*syscall.Stat_t).Blocks*512+price, inodes+1
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes, inodes
}

func create(t *testing.T, c caller, name string) nfs3.FH {
	t.Helper()
	made, err := c.Create(t.Context(), nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: c.root, Name: []byte(name)}, Mode: nfs3.Guarded})
	if err != nil || made.Status != nfs3.OK {
		t.Fatalf("CREATE: %v, %v", made.Status, err)
	}
	return made.Object
}

// fill writes a file from its beginning until the server takes no more.
func fill(t *testing.T, c caller, file nfs3.FH) (bytes int64) {
	t.Helper()
	for data := make([]byte, 1<<20); ; {
		written, err := c.Write(t.Context(), file, uint64(bytes), nfs3.Unstable, data)
		switch {
		case err == nil && written.Status == nfs3.OK:
			bytes += int64(written.Count)
		case err == nil && (written.Status == nfs3.ErrDQuot || written.Status == nfs3.ErrJukebox):
			return bytes
		default:
			t.Fatalf("WRITE at %d: %v, %v", bytes, written.Status, err)
		}
	}
}

func truncate(t *testing.T, c caller, file nfs3.FH) {
	t.Helper()
	res, err := c.Setattr(t.Context(), nfs3.SetattrArgs{Object: file, Attr: nfs3.Sattr{Size: nfs3.SetUint64{Set: true}}})
	if err != nil || res.Status != nfs3.OK {
		t.Fatalf("SETATTR: %v, %v", res.Status, err)
	}
}

// times are how long calls took, the shortest first.
type times []time.Duration

func (d times) String() string {
	at := func(percent int) time.Duration { return d[(len(d)-1)*percent/100].Round(time.Microsecond) }
	return fmt.Sprintf("%d, p50 %v, p99 %v, longest %v", len(d), at(50), at(99), at(100))
}

// load makes, writes, looks at and removes a file again and again, and tells how
// long each call took.
func load(t *testing.T, c caller, file nfs3.FH, more func() bool) (took times) {
	t.Helper()
	timed := func(call func(ctx context.Context) (nfs3.Status, error)) {
		t.Helper()
		begin := time.Now()
		status, err := call(t.Context())
		took = append(took, time.Since(begin))
		if err != nil || status != nfs3.OK {
			t.Fatalf("call %d: %v, %v", len(took), status, err)
		}
	}
	data := make([]byte, 4096)
	for more() {
		timed(func(ctx context.Context) (nfs3.Status, error) {
			res, err := c.Create(ctx, nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: c.root, Name: []byte("new")}, Mode: nfs3.Guarded})
			return res.Status, err
		})
		timed(func(ctx context.Context) (nfs3.Status, error) {
			res, err := c.Write(ctx, file, 0, nfs3.Unstable, data)
			return res.Status, err
		})
		timed(func(ctx context.Context) (nfs3.Status, error) {
			res, err := c.Getattr(ctx, file)
			return res.Status, err
		})
		timed(func(ctx context.Context) (nfs3.Status, error) {
			res, err := c.Remove(ctx, c.root, "new")
			return res.Status, err
		})
	}
	slices.Sort(took)
	return took
}

// heap is what the program's objects take, with what is not used any more taken
// away.
func heap() uint64 {
	debug.FreeOSMemory() // collects first
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
