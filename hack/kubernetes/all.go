//go:build all

package main

import (
	"context"

	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// What a whole cluster needs besides; with it the build takes twice as long.
func init() {
	components["kube-controller-manager"] = func() int { return cli.Run(controllers.NewControllerManagerCommand()) }
	components["kube-scheduler"] = func() int { return cli.Run(scheduler.NewSchedulerCommand()) }
	// Not the context of a signal: the command makes its own and panics over a second one.
	components["kubelet"] = func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) }
	components["kubectl"] = func() int {
		// Prints the error in kubectl's own words and ends the process with its status.
		util.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()))
		return 0
	}
}
