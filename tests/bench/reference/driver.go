package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// record is what is kept of a claim, a file each, and in memory.
type record struct {
	Namespace, Name string
	UID             types.UID
	Prepared        bool
	Devices         []kubeletplugin.Device
}

type driver struct {
	settings
	mutex   sync.Mutex
	records map[types.UID]record
	busy    map[types.UID]*sync.Mutex
}

func newDriver(s settings) (*driver, error) {
	d := &driver{
		settings: s, records: map[types.UID]record{}, busy: map[types.UID]*sync.Mutex{},
	}
	paths, err := filepath.Glob(filepath.Join(s.state, "[!.]*.json"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		var r record
		content, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(content, &r)
		}
		if err != nil {
			return nil, err
		}
		d.records[r.UID] = r
	}
	return d, nil
}

func (d *driver) prepare(claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	defer d.lock(claim.UID)()
	if known, ok := d.find(claim.UID); ok && known.Prepared {
		return known.Devices, nil
	}
	r := record{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	spec := newSpec(d.driver)
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != d.driver {
			continue
		}
		r.Devices = append(r.Devices, kubeletplugin.Device{
			Requests:     []string{result.Request},
			PoolName:     result.Pool,
			DeviceName:   result.Device,
			CDIDeviceIDs: []string{spec.add(string(claim.UID), result.Device)},
		})
	}
	if d.intent {
		if err := d.put(r); err != nil {
			return nil, err
		}
	}
	if err := writeDurably(d.cdi, d.specName(claim.UID), spec); err != nil {
		return nil, err
	}
	r.Prepared = true
	return r.Devices, d.put(r)
}

func (d *driver) unprepare(uid types.UID) error {
	defer d.lock(uid)()
	if _, ok := d.find(uid); !ok {
		return nil
	}
	if err := removeDurably(d.cdi, d.specName(uid)); err != nil {
		return err
	}
	if err := removeDurably(d.state, string(uid)+".json"); err != nil {
		return err
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	delete(d.records, uid)
	delete(d.busy, uid)
	return nil
}

func (d *driver) put(r record) error {
	if err := writeDurably(d.state, string(r.UID)+".json", r); err != nil {
		return err
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.records[r.UID] = r
	return nil
}

func (d *driver) find(uid types.UID) (record, bool) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	r, ok := d.records[uid]
	return r, ok
}

// lock keeps two calls off one claim; it returns how to let go.
func (d *driver) lock(uid types.UID) func() {
	d.mutex.Lock()
	claim, ok := d.busy[uid]
	if !ok {
		claim = &sync.Mutex{}
		d.busy[uid] = claim
	}
	d.mutex.Unlock()
	claim.Lock()
	return claim.Unlock
}

func (d *driver) specName(uid types.UID) string {
	return strings.ReplaceAll(d.driver, "/", "_") + "-" + string(uid) + ".json"
}

func writeDurably(folder, name string, content any) error {
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(folder, "."+name+".*.tmp")
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), filepath.Join(folder, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return syncFolder(folder)
}

func removeDurably(folder, name string) error {
	err := os.Remove(filepath.Join(folder, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, syncFolder(folder))
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
