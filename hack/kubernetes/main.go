// etcd and Kubernetes components in one binary, for tests: the first argument names the component,
// the others are its own. One binary links once what all of them share.
//
// A component is one entry in the table, of a whole cluster in all.go. After a change of the
// imports, and for a new Kubernetes version, `hack/kubernetes-build --tidy VERSION` writes the
// version's go.mod and go.sum.
package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// Each entry runs the component with os.Args as its own command line and returns the exit status.
var components = map[string]func() int{
	"etcd":           func() int { etcdmain.Main(os.Args); return 0 },
	"kube-apiserver": func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
}

func main() {
	names := make([]string, 0, len(components))
	for name := range components {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(os.Args) < 2 || components[os.Args[1]] == nil {
		fmt.Fprintf(os.Stderr, "usage: %s COMPONENT [FLAG...]; COMPONENT is one of: %s\n", os.Args[0], strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Args = os.Args[1:]
	if os.Getenv("STOP_AT_END_OF_STDIN") == "1" {
		go stopAtEndOfStdin()
	}
	os.Exit(components[os.Args[0]]())
}

// Whoever started the component holds the other end of the pipe: however it ends, killed even,
// the component ends too and leaves no process behind.
func stopAtEndOfStdin() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
}
