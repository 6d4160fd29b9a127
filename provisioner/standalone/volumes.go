package standalone

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/podnas/podnas/internal/statedir"
)

// provisionedDir is the directory for PersistentVolumes in the folder of claims.
const provisionedDir = "provisioned"

// pvFile is the file of the PersistentVolume of that name.
func (r *Runner) pvFile(name string) string {
	return filepath.Join(r.Claims, provisionedDir, name+".yaml")
}

// writePV replaces the file of a PersistentVolume atomically, so that nobody reads
// a part of it.
func (r *Runner) writePV(pv *v1.PersistentVolume) error {
	data, err := yaml.Marshal(pv)
	if err != nil {
		return err
	}
	name := r.pvFile(pv.Name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+pv.Name+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// removeHalfWritten removes what writePV had not finished when the process before was killed.
func (r *Runner) removeHalfWritten() {
	half, _ := filepath.Glob(filepath.Join(r.Claims, provisionedDir, "."+volumeName("*")+"-*")) // the pattern is good
	for _, name := range half {
		if err := statedir.Remove(name); err != nil {
			r.Log.Warn("standalone: can't remove what was half written", "err", err)
		}
	}
}

// writtenPVs are the PersistentVolumes in provisioned/.
type writtenPVs struct {
	byName map[string]*v1.PersistentVolume
	lost   map[string]error // why others can't be read, by name
}

// readPVs reads the written PersistentVolumes.
func (r *Runner) readPVs() (writtenPVs, error) {
	dir := filepath.Join(r.Claims, provisionedDir)
	pvs := writtenPVs{map[string]*v1.PersistentVolume{}, map[string]error{}}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return pvs, nil
	}
	if err != nil {
		return pvs, err
	}
	there := map[string]bool{}
	for _, e := range entries {
		name, isPV := strings.CutSuffix(e.Name(), ".yaml")
		if !isPV || e.Name()[0] == '.' {
			continue
		}
		file := filepath.Join(dir, e.Name())
		there[file] = true
		pv, err := r.parsePV(file, e)
		if _, missing := os.Lstat(file); errors.Is(missing, fs.ErrNotExist) {
			continue // removed since it was listed
		}
		if err == nil && (pv.Name != name || pv.Spec.ClaimRef == nil) {
			err = errors.New("it is not the PersistentVolume that podnas wrote")
		}
		if err != nil {
			pvs.lost[name] = err
			continue
		}
		pvs.byName[name] = pv.DeepCopy()
	}
	r.pvFiles.forget(func(name string) bool { return there[name] })
	return pvs, nil
}

// putAside renames the files that can't be read, if the records on the disk have what they
// said: podnas writes them again. The others stay lost.
func (r *Runner) putAside(pvs writtenPVs) {
	for name, err := range pvs.lost {
		if v, missing := r.Provisioner.Store.Get(name); missing != nil || v.Claim == nil {
			continue // whose volume it is, or that it was released, was in this file alone
		}
		if failed := r.setAside(filepath.Join(r.Claims, provisionedDir), name+".yaml", err); failed != nil {
			pvs.lost[name] = errors.Join(err, failed)
			continue
		}
		delete(pvs.lost, name)
	}
}

// makeWay puts aside what is in the place of the folder provisioned/. A link to a folder is as good,
// and a person has made it: if it leads nowhere, what it leads to may not be mounted.
func (r *Runner) makeWay() error {
	name := filepath.Join(r.Claims, provisionedDir)
	info, err := os.Lstat(name)
	if err != nil || info.IsDir() {
		return nil // readPVs reports the error
	}
	if info.Mode().Type() == fs.ModeSymlink {
		if to, err := os.Stat(name); err != nil || !to.IsDir() {
			return fmt.Errorf("%s is a link that leads to no folder: mount what it leads to, or remove the link", name)
		}
		return nil
	}
	return r.setAside(r.Claims, provisionedDir, statedir.ErrIrregular)
}

func (r *Runner) setAside(dir, name string, why error) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	return statedir.Of(folder, nil, r.Log).SetAside(name, why)
}

// parsePV parses a file of provisioned/.
func (r *Runner) parsePV(name string, e fs.DirEntry) (*v1.PersistentVolume, error) {
	if !e.Type().IsRegular() {
		return nil, statedir.ErrIrregular
	}
	pv, _, err := r.pvFiles.parse(name, parsePV)
	return pv, err
}

func parsePV(data []byte) (*v1.PersistentVolume, error) {
	pv := &v1.PersistentVolume{}
	return pv, yaml.UnmarshalStrict(data, pv)
}
