package main

// spec is a CDI spec as small as gpuslice's own.
type spec struct {
	Version string   `json:"cdiVersion"`
	Kind    string   `json:"kind"`
	Devices []device `json:"devices"`
	Edits   edits    `json:"containerEdits"`
}

type device struct {
	Name  string `json:"name"`
	Edits edits  `json:"containerEdits"`
}

type edits struct {
	Env   []string `json:"env,omitempty"`
	Nodes []node   `json:"deviceNodes,omitempty"`
}

type node struct {
	Path        string `json:"path"`
	HostPath    string `json:"hostPath"`
	Type        string `json:"type"`
	Major       int    `json:"major"`
	Minor       int    `json:"minor"`
	Permissions string `json:"permissions"`
}

func newSpec(driver string) *spec {
	return &spec{
		Version: "0.5.0",
		Kind:    "k8s." + driver + "/claim",
		Edits: edits{
			Env:   []string{"NVIDIA_VISIBLE_DEVICES=void"},
			Nodes: []node{null("/dev/reference-ctl")},
		},
	}
}

// add describes a device and gives its CDI id.
func (s *spec) add(claim, name string) string {
	full := claim + "-" + name
	s.Devices = append(s.Devices, device{
		Name: full,
		Edits: edits{
			Env:   []string{"REFERENCE_DEVICE=" + name, "REFERENCE_MEMORY_MIB=80000"},
			Nodes: []node{null("/dev/reference-" + name)},
		},
	})
	return s.Kind + "=" + full
}

func null(path string) node {
	return node{Path: path, HostPath: "/dev/null", Type: "c", Major: 1, Minor: 3, Permissions: "rw"}
}
