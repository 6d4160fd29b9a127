package shareddisk

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/internal/volume/xfs"
)

// fakeDisk is a file in the place of a disk of so many MiB.
func fakeDisk(t *testing.T, size int64) *device {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "disk"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	d := &device{file: f, path: f.Name(), block: aligned(beatSize), out: aligned(beatSize)}
	t.Cleanup(func() { _ = d.close() })
	if err := f.Truncate(size * mib); err != nil {
		t.Fatal(err)
	}
	return d
}

// put writes to the disk at an offset.
func (d *device) put(t *testing.T, at int64, b []byte) {
	t.Helper()
	if _, err := d.file.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// superblock of an XFS of so many MiB.
func super(label string, size int64, making bool) []byte {
	b := make([]byte, xfs.SuperblockSize)
	copy(b, "XFSB")
	binary.BigEndian.PutUint32(b[4:], 4096)
	binary.BigEndian.PutUint64(b[8:], uint64(size*mib/4096))
	binary.BigEndian.PutUint16(b[102:], 512)
	copy(b[108:120], label)
	if making {
		b[126] = 1
	}
	return b
}

func TestRead(t *testing.T) {
	const size = 400 // of the disk
	said := beat{Key: 7, Count: 3, Name: "podnas-0"}
	with := func(how func(*beat)) beat {
		b := said
		how(&b)
		return b
	}
	making, growing := with(func(b *beat) { b.Making = true }), with(func(b *beat) { b.Growing = true })
	for _, tt := range []struct {
		name  string
		super []byte
		beats map[int64]*beat // by where, in MiB
		other map[int64]string
		want  beat
		empty bool
		at    int64 // where a beat is written, in MiB
		err   string
	}{
		{name: "empty", empty: true, at: 399},
		{name: "podnas's, and nobody had it with a beat", super: super("podnas", 399, false), at: 399},
		{name: "podnas's", super: super("podnas", 399, false), beats: map[int64]*beat{399: &said}, want: said, at: 399},
		{name: "a size that is no whole MiB", super: super("podnas", 398, false), beats: map[int64]*beat{398: &said}, want: said, at: 398},
		{name: "the disk has become larger", super: super("podnas", 350, false), beats: map[int64]*beat{350: &said}, want: said, at: 350},
		{name: "it is being made larger", super: super("podnas", 350, false), beats: map[int64]*beat{350: &growing, 399: &said}, want: said, at: 399},
		{name: "it was made larger, and what was the beat is a file's", super: super("podnas", 350, false), other: map[int64]string{350: "data"}, beats: map[int64]*beat{399: &said}, want: said, at: 399},
		{name: "its maker has died before it began", beats: map[int64]*beat{399: &making}, want: making, empty: true, at: 399},
		{name: "its maker has died while it made it", super: super("podnas", 399, true), beats: map[int64]*beat{399: &making}, want: making, empty: true, at: 399},
		{name: "the superblock is gone", beats: map[int64]*beat{399: &said}, err: "its superblock is gone: stop all podnas, copy the disk if you can, then run xfs_repair DISK on the node of podnas-0, which"},
		{name: "another's XFS", super: super("data", 300, false), err: `an XFS with the label "data"`},
		{name: "an XFS without a label", super: super("", 300, false), err: `an XFS with the label ""`},
		{name: "something at the beginning", other: map[int64]string{0: "LUKS"}, err: "something that is not podnas's"},
		{name: "something in the first MiB", other: map[int64]string{0: strings.Repeat("\x00", 0x438) + "\x53\xef"}, err: "something that is not podnas's"},
		{name: "something in the last MiB", other: map[int64]string{399: strings.Repeat("\x00", 5000) + "EFI PART"}, err: "something that is not podnas's"},
		{name: "the disk is smaller here", super: super("podnas", 500, false), err: "look at its size again"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := fakeDisk(t, size)
			if tt.super != nil {
				d.put(t, 0, tt.super)
			}
			for at, b := range tt.beats {
				d.put(t, at*mib, b.encode())
			}
			for at, text := range tt.other {
				d.put(t, at*mib, []byte(text))
			}
			b, empty, err := d.read()
			if tt.err != "" {
				if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), d.path, "DISK"), tt.err) {
					t.Errorf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil || b != tt.want || empty != tt.empty || d.at != tt.at*mib {
				t.Errorf("%+v, empty %v, beats at %d, %v; want %+v, %v, %d", b, empty, d.at/mib, err, tt.want, tt.empty, tt.at)
			}
			if err := d.write(&said); err != nil {
				t.Fatal(err)
			}
			if got, ok, err := d.beatAt(tt.at * mib); err != nil || !ok || got != said {
				t.Errorf("read back: %+v, %v, %v", got, ok, err)
			}
		})
	}
}

// TestReadWhileMade reads a disk while another process makes the file system on it.
func TestReadWhileMade(t *testing.T) {
	for range 300 {
		d := fakeDisk(t, 310)
		maker := &device{file: d.file, out: aligned(beatSize), at: 309 * mib}
		made := make(chan error, 1)
		go func() {
			err := maker.write(&beat{Key: 1, Making: true})
			for _, b := range [][]byte{[]byte("AG"), super(xfs.Label, 309, true), super(xfs.Label, 309, false)} {
				_, failed := d.file.WriteAt(b, 0)
				err = errors.Join(err, failed)
			}
			made <- errors.Join(err, maker.write(&beat{Key: 1}))
		}()
		for done := false; !done; {
			select {
			case err := <-made:
				if err != nil {
					t.Fatal(err)
				}
				done = true
			default:
			}
			if _, _, err := d.read(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestForeignIsPermanent(t *testing.T) {
	d := fakeDisk(t, 400)
	d.put(t, 0, []byte("somebody's"))
	_, _, err := d.read()
	var permanent permanentError
	if !errors.As(err, &permanent) {
		t.Errorf("%v is waited for", err)
	}
}

// A disk that the kernel has removed has the size 0, and what is read of it is at its end.
func TestRemoved(t *testing.T) {
	d := fakeDisk(t, 400)
	if err := d.removed(); err != nil {
		t.Error(err)
	}
	if err := d.file.Truncate(0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c := newContender(d, newBeat("podnas-0", ""), nil, func(seen) {})
	if err := c.take(ctx); !errors.Is(err, errRemoved) {
		t.Errorf("a standby ends with %v", err)
	}
}

// What a storage must be able to do is said of what the storage answers alone.
func TestStatus(t *testing.T) {
	for status, says := range map[uintptr]string{0x2: needs, 0x10000: "can't be reached", 0xf0002: "can't be reached"} {
		if err := statusError("reserve the disk", status); !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), needs) != (says == needs) {
			t.Errorf("%#x: %v", status, err)
		}
	}
}

func TestOpenDeviceRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "missing"): "no such file",
		file:                          "no block device",
		dir:                           "no block device",
		"/dev/null":                   "no block device",
	} {
		if d, err := openDevice(path, dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q", path, d, err, want)
		}
	}
}

func TestBeat(t *testing.T) {
	whole := beat{Key: 1<<64 - 1, Count: 5, Boot: "boot", Name: strings.Repeat("n", nameMax), Growing: true, Making: true, Ended: true}
	block := whole.encode()
	if len(block) != beatSize || strings.TrimRight(string(block), "\n") != strings.TrimRight(string(block[:512]), "\n") {
		t.Errorf("%d bytes, of which more than 512 say something", len(block))
	}
	if got, ok := decodeBeat(block); !ok || got != whole {
		t.Errorf("%+v, %v", got, ok)
	}
	for i := range len(strings.TrimRight(string(block), "\n")) { // whatever byte is another
		torn := append([]byte(nil), block...)
		torn[i] ^= 1
		if got, ok := decodeBeat(torn); ok {
			t.Fatalf("byte %d is another, and it is %+v", i, got)
		}
	}
	for _, other := range [][]byte{nil, {}, []byte(magic), []byte(magic + "00000000 {}"), make([]byte, beatSize)} {
		if got, ok := decodeBeat(other); ok {
			t.Errorf("%q is %+v", other, got)
		}
	}
}

func FuzzDecodeBeat(f *testing.F) {
	b := beat{Key: 1, Name: "podnas-0"}
	f.Add(b.encode())
	f.Add([]byte(magic + "00000000 {}"))
	f.Fuzz(func(t *testing.T, block []byte) {
		if got, ok := decodeBeat(block); ok && got.Key == 0 {
			t.Errorf("%q is a beat without a key", block)
		}
	})
}

// TestDecodeHolder has answers to READ RESERVATION as SPC-3 has them, section 6.11.3.
func TestDecodeHolder(t *testing.T) {
	answer := func(length byte, kind byte) []byte {
		b := make([]byte, 24)
		b[3], b[7], b[8], b[15], b[21] = 9, length, 0xab, 0xcd, kind
		return b
	}
	for _, tt := range []struct {
		name string
		b    []byte
		want uint64
		err  error
	}{
		{"nobody has it", answer(0, 0), 0, nil},
		{"write exclusive, registrants only", answer(16, 5), 0xab000000000000cd, nil},
		{"exclusive access", answer(16, 3), 0, errOtherKind},
		{"write exclusive, all registrants", answer(16, 7), 0, errOtherKind},
	} {
		if got, err := decodeHolder(tt.b); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %#x, %v", tt.name, got, err)
		}
	}
}
