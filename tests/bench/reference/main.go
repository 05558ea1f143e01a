// The smallest DRA driver on upstream's helper library that does what gpuslice does for a claim: GET
// it (the helper does), write a CDI spec and a record that survive a power cut, answer; and undo
// that. It is what the benchmark compares with, no driver for use.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

type settings struct {
	kubeconfig, node, driver, registry, plugins, cdi, state, devices string
	serialize, intent                                                bool
	qps                                                              float64
}

func main() {
	var s settings
	flag.StringVar(&s.kubeconfig, "kubeconfig", "", "how to reach the API server")
	flag.StringVar(&s.node, "node-name", "", "name of the node and of its pool")
	flag.StringVar(&s.driver, "driver-name", "", "name of the driver")
	flag.StringVar(&s.registry, "registry", "", "folder of registration sockets")
	flag.StringVar(&s.plugins, "plugins", "", "folder of the DRA socket")
	flag.StringVar(&s.cdi, "cdi-root", "", "folder of CDI specs")
	flag.StringVar(&s.state, "state-dir", "", "folder of records")
	flag.StringVar(&s.devices, "devices", "", "JSON file: for each slice to publish, its devices")
	flag.BoolVar(&s.serialize, "serialize", true, "one call at a time: the helper's default")
	flag.BoolVar(&s.intent, "intent", false, "write the record before the work too")
	flag.Float64Var(&s.qps, "qps", -1, "requests per second; -1: no limit, 0: client-go's default")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = float32(s.qps)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	resources, err := resourcesOf(s)
	if err != nil {
		return err
	}
	for _, folder := range []string{s.cdi, s.state, s.plugins} {
		if err := os.MkdirAll(folder, 0o750); err != nil {
			return err
		}
	}
	driver, err := newDriver(s)
	if err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, driver,
		kubeletplugin.KubeClient(client),
		kubeletplugin.NodeName(s.node),
		kubeletplugin.DriverName(s.driver),
		kubeletplugin.RegistrarDirectoryPath(s.registry),
		kubeletplugin.PluginDataDirectoryPath(s.plugins),
		kubeletplugin.Serialize(s.serialize),
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	if err := helper.PublishResources(ctx, resources); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func resourcesOf(s settings) (resourceslice.DriverResources, error) {
	var pool resourceslice.Pool
	content, err := os.ReadFile(s.devices)
	if err != nil {
		return resourceslice.DriverResources{}, err
	}
	var slices [][]resourceapi.Device
	if err := json.Unmarshal(content, &slices); err != nil {
		return resourceslice.DriverResources{}, err
	}
	for _, devices := range slices {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: devices})
	}
	return resourceslice.DriverResources{
		Pools: map[string]resourceslice.Pool{s.node: pool},
	}, nil
}

func (d *driver) PrepareResourceClaims(
	_ context.Context, claims []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		devices, err := d.prepare(claim)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

func (d *driver) UnprepareResourceClaims(
	_ context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		results[claim.UID] = d.unprepare(claim.UID)
	}
	return results, nil
}

func (d *driver) HandleError(_ context.Context, err error, msg string) {
	fmt.Fprintln(os.Stderr, msg, err)
}
