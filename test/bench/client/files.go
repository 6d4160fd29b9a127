//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	manyFiles  = "many"
	repository = "repo" // short, for the paths in it are handles of the server that does least
)

func fileLoads(cfg *config, tree []treeFile) []load {
	return []load{
		{name: "small-files", unit: "files", run: func(t *turn) (result, error) { return smallFiles(t, cfg.duration) }},
		{name: "untar", unit: "files", whole: true, run: func(t *turn) (result, error) { return untar(t, tree) }},
		{name: "git-status", unit: "files", whole: true, run: func(t *turn) (result, error) { return gitStatus(t, len(tree)) }},
		{name: "copy", unit: "MiB", whole: true, run: func(t *turn) (result, error) { return copyFile(t, cfg.fileSize) }},
		{name: "ls-l", unit: "files", whole: true, run: func(t *turn) (result, error) { return list(t, cfg.entries) }},
	}
}

// smallFiles is the life of one file after the other: made, written and closed,
// looked at, read, removed.
func smallFiles(t *turn, duration time.Duration) (r result, err error) {
	data := make([]byte, pageSize)
	begun := time.Now()
	for ; r.took < duration; r.took = time.Since(begun) {
		name := filepath.Join(t.at, fmt.Sprintf("small-%d-%d", t.round, r.done))
		seed := uint64(r.done)
		stamp(data, 0, seed)
		if err := writeNew(name, data, 0o644); err != nil {
			return r, err
		}
		info, err := os.Stat(name)
		if err != nil {
			return r, err
		}
		read, err := os.ReadFile(name)
		if err != nil {
			return r, err
		}
		if info.Size() != pageSize || !bytes.Equal(read, data) {
			return r, fmt.Errorf("%s has %d bytes, %d read, and not those written", name, info.Size(), len(read))
		}
		if err := os.Remove(name); err != nil {
			return r, err
		}
		r.done++
	}
	left, err := filepath.Glob(filepath.Join(t.local, "small-*"))
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("still on the disk: %s", left[0])
	}
	return r, err
}

// writeNew makes a file that is not there.
func writeNew(name string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// treeFile is a file or directory of the source tree.
type treeFile struct {
	*tar.Header
	data []byte
}

func readTree(name string) ([]treeFile, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var tree []treeFile
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return tree, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader { // git's, with the commit
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		tree = append(tree, treeFile{h, data})
	}
}

// extract does with the tree what tar -x does.
func extract(tree []treeFile, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	for _, f := range tree {
		name := filepath.Join(to, f.Name)
		var err error
		switch f.Typeflag {
		case tar.TypeDir:
			err = os.Mkdir(name, f.FileInfo().Mode().Perm())
		case tar.TypeSymlink:
			err = os.Symlink(f.Linkname, name)
		case tar.TypeReg:
			if err = writeNew(name, f.data, f.FileInfo().Mode().Perm()); err == nil {
				err = os.Chtimes(name, time.Time{}, f.ModTime)
			}
		default:
			err = fmt.Errorf("%s: is neither file, directory nor symbolic link", f.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func untar(t *turn, tree []treeFile) (r result, err error) {
	to := fmt.Sprintf("untar-%s-%d", t.version, t.round)
	begun := time.Now()
	err = errors.Join(extract(tree, filepath.Join(t.at, to)), writtenBack(t.at))
	r = result{done: len(tree), took: time.Since(begun)}
	for _, f := range tree {
		if err != nil {
			break
		}
		if f.Typeflag == tar.TypeReg {
			err = same(f, filepath.Join(t.local, to, f.Name))
		}
	}
	return r, err
}

// writtenBack has the client write what it still holds: with a delegation, which the kernel's server gives, closing a file
// does not.
func writtenBack(at string) error {
	dir, err := os.Open(at)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close())
}

// same holds a file on the disk against what it was extracted from, but for its time: to a client of Linux 7.2 that has a
// delegation, the kernel's server gives the time when the data was written back.
func same(f treeFile, name string) error {
	data, err := os.ReadFile(name)
	if err == nil && !bytes.Equal(data, f.data) {
		err = fmt.Errorf("%s on the disk is not as in the tar", name)
	}
	return err
}

// makeRepository makes the source tree a repository in which nothing has changed.
func makeRepository(dir string, tree []treeFile) error {
	at := filepath.Join(dir, repository)
	if err := extract(tree, at); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"init", "-q"},
		{"add", "-A"},
		{"-c", "user.name=bench", "-c", "user.email=bench@example.com", "commit", "-q", "-m", "all"},
	} {
		if _, err := git(at, args...); err != nil {
			return err
		}
	}
	return nil
}

func git(at string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = at
	// Nothing of the machine's settings, and status writes nothing.
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_OPTIONAL_LOCKS=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

func gitStatus(t *turn, files int) (result, error) {
	begun := time.Now()
	out, err := git(filepath.Join(t.at, repository), "status", "--porcelain")
	r := result{done: files, took: time.Since(begun)}
	if err == nil && out != "" {
		err = fmt.Errorf("git status of a clean tree says:\n%s", out)
	}
	return r, err
}

// copyFile copies a file within the volume as cp does: as a clone, and where there is none with
// copy_file_range(2).
func copyFile(t *turn, size int64) (r result, err error) {
	to := fmt.Sprintf("copy-%s-%d", t.version, t.round)
	begun := time.Now()
	from, err := os.Open(filepath.Join(t.at, readFile))
	if err != nil {
		return r, err
	}
	defer from.Close()
	f, err := os.OpenFile(filepath.Join(t.at, to), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return r, err
	}
	if unix.IoctlFileClone(int(f.Fd()), int(from.Fd())) != nil {
		_, err = f.ReadFrom(from)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return r, err
	}
	r = result{done: int(size >> 20), took: time.Since(begun)}
	copied := filepath.Join(t.local, to)
	if err := exec.Command("cmp", copied, filepath.Join(t.local, readFile)).Run(); err != nil {
		return r, fmt.Errorf("%s on the disk is not as what it was copied from: %w", to, err)
	}
	return r, os.Remove(filepath.Join(t.at, to))
}

// makeEntries makes many empty files in one directory.
func makeEntries(dir string, n int) error {
	at := filepath.Join(dir, manyFiles)
	if err := os.Mkdir(at, 0o755); err != nil {
		return err
	}
	for i := range n {
		if err := unix.Mknod(fmt.Sprintf("%s/file-%06d", at, i), unix.S_IFREG|0o644, 0); err != nil {
			return err
		}
	}
	return nil
}

// list reads the names of a directory and looks at each, as ls -l does.
func list(t *turn, want int) (r result, err error) {
	begun := time.Now()
	dir, err := os.Open(filepath.Join(t.at, manyFiles))
	if err != nil {
		return r, err
	}
	defer dir.Close()
	for {
		entries, err := dir.ReadDir(1024)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return r, err
		}
		for _, e := range entries {
			if _, err := e.Info(); err != nil { // lstat
				return r, err
			}
			r.done++
		}
	}
	if r.took = time.Since(begun); r.done != want {
		return r, fmt.Errorf("%d files listed, there are %d", r.done, want)
	}
	return r, nil
}
