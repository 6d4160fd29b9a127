package standalone

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/podnas/podnas/statedir"
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

// readPVs reads the written PersistentVolumes, by name.
func (r *Runner) readPVs() (map[string]*v1.PersistentVolume, error) {
	dir := filepath.Join(r.Claims, provisionedDir)
	if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
		if err := r.setAside(r.Claims, provisionedDir, statedir.ErrIrregular); err != nil || r.Log == nil {
			return nil, err
		}
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	pvs, there := map[string]*v1.PersistentVolume{}, map[string]bool{}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".yaml" || e.Name()[0] == '.' {
			continue
		}
		name := filepath.Join(dir, e.Name())
		there[name] = true
		pv, err := r.parsePV(name, e)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since it was listed
		}
		if err == nil && (pv.Name+".yaml" != e.Name() || pv.Spec.ClaimRef == nil) {
			err = errors.New("it is not the PersistentVolume that podnas wrote")
		}
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			if err = r.setAside(dir, e.Name(), err); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s/%s: %w; remove the file, and podnas writes it again", provisionedDir, e.Name(), err)
		}
		pvs[pv.Name] = pv.DeepCopy()
	}
	r.pvFiles.forget(func(name string) bool { return there[name] })
	return pvs, nil
}

// setAside puts something aside that podnas can write again. A Runner that only looks leaves it.
func (r *Runner) setAside(dir, name string, why error) error {
	if r.Log == nil {
		r.damaged++
		return nil
	}
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
	return r.pvFiles.parse(name, parsePV)
}

func parsePV(data []byte) (*v1.PersistentVolume, error) {
	pv := &v1.PersistentVolume{}
	return pv, yaml.UnmarshalStrict(data, pv)
}
