package standalone

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
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

// readPVs reads the written PersistentVolumes, by name.
func (r *Runner) readPVs() (map[string]*v1.PersistentVolume, error) {
	dir := filepath.Join(r.Claims, provisionedDir)
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
		pv, _, err := r.pvFiles.parse(name, parsePV)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since it was listed
		}
		if err == nil && (pv.Name+".yaml" != e.Name() || pv.Spec.ClaimRef == nil) {
			err = errors.New("it is not the PersistentVolume that podnas wrote")
		}
		if err != nil {
			return nil, fmt.Errorf("%s/%s: %w; remove the file, and podnas writes it again", provisionedDir, e.Name(), err)
		}
		pvs[pv.Name] = pv.DeepCopy()
	}
	r.pvFiles.forget(func(name string) bool { return there[name] })
	return pvs, nil
}

func parsePV(data []byte) (*v1.PersistentVolume, error) {
	pv := &v1.PersistentVolume{}
	return pv, yaml.UnmarshalStrict(data, pv)
}
