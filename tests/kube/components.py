"""Command lines and configuration files of a cluster's components."""

import json
from dataclasses import dataclass
from pathlib import Path

from tests.kube.cell import Addresses
from tests.kube.flags import api_server_flags, etcd_flags
from tests.kube.images import PAUSE
from tests.kube.profiles import Profile

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
KUBELET_PORT = 10250

_VOLUME_PLUGINS = "/var/lib/kubelet/volume-plugins"

# Everything that containerd would keep elsewhere by default lies in the cell's own folders.
_CONTAINERD = """\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
address = "{socket}"

[plugins.'io.containerd.internal.v1.opt']
path = "/var/lib/containerd/opt"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{pause}"

[plugins.'io.containerd.cri.v1.runtime']
enable_cdi = true
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
disable_apparmor = true
# Only a process with CAP_SYS_RESOURCE may lower its score.
restrict_oom_score_adj = true
enable_experimental_restore_via_create = true

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{cni}"
"""

# No disk is ever too full for a test.
_NEVER_EVICT = dict.fromkeys(
    (
        "imagefs.available",
        "imagefs.inodesFree",
        "memory.available",
        "nodefs.available",
        "nodefs.inodesFree",
    ),
    "0%",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """One cluster's components; ``control`` is the folder of its tokens, keys and kubeconfigs."""

    control: Path
    config: Path
    addresses: Addresses
    profile: Profile
    node_profile: Profile
    node_name: str
    cgroup_root: str
    bridge: str

    @property
    def etcd_url(self) -> str:
        return f"http://{self.addresses.node}:2379"

    def etcd(self) -> tuple[str, ...]:
        peer = f"http://{self.addresses.node}:2380"
        return ("etcd", *etcd_flags(self.control / "etcd", url=self.etcd_url, peer_url=peer))

    def kube_apiserver(self) -> tuple[str, ...]:
        return (
            "kube-apiserver",
            *api_server_flags(
                self.control,
                self.profile,
                etcd_url=self.etcd_url,
                address=self.addresses.api_server,
                port=443,
                service_range=self.addresses.services,
            ),
            f"--kubelet-client-certificate={self.control / 'kubelet-client.crt'}",
            f"--kubelet-client-key={self.control / 'kubelet-client.key'}",
            "--kubelet-preferred-address-types=InternalIP",
        )

    def kube_controller_manager(self) -> tuple[str, ...]:
        return (
            "kube-controller-manager",
            *self._controller("controller-manager"),
            f"--service-account-private-key-file={self.control / 'service-account.key'}",
            # Pods check the API server's certificate against what is in this file.
            f"--root-ca-file={self.control / 'certs' / 'apiserver.crt'}",
            "--use-service-account-credentials",
            # It creates this folder; the usual place is none of the cell's own.
            f"--flex-volume-plugin-dir={_VOLUME_PLUGINS}",
            # By default it makes claims more slowly than the scheduler places pods.
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        )

    def kube_scheduler(self) -> tuple[str, ...]:
        return ("kube-scheduler", *self._controller("scheduler"))

    def kubelet(self) -> tuple[str, ...]:
        return (
            "kubelet",
            f"--config={self.config / 'kubelet.json'}",
            f"--kubeconfig={self.control / 'kubelet.kubeconfig'}",
            f"--hostname-override={self.node_name}",
            f"--node-ip={self.addresses.node}",
            "--v=2",
        )

    def containerd(self) -> tuple[str, ...]:
        return ("containerd", f"--config={self.config / 'containerd.toml'}")

    def write_config(self) -> None:
        """Write the files that the command lines name."""
        network = self.config / "cni"
        network.mkdir(parents=True, exist_ok=True)
        (network / "bridge.conflist").write_text(json.dumps(self._network()))
        (self.config / "kubelet.json").write_text(json.dumps(self._kubelet_config()))
        (self.config / "containerd.toml").write_text(
            _CONTAINERD.format(socket=CONTAINERD_SOCKET, pause=PAUSE, cni=network)
        )

    def _controller(self, name: str) -> tuple[str, ...]:
        kubeconfig = self.control / f"{name}.kubeconfig"
        return (
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            # There are no client certificates to look up.
            "--authentication-skip-lookup",
            f"--bind-address={self.addresses.node}",
            "--leader-elect=false",
            *self.profile.gate_flags(),
        )

    def _network(self) -> dict[str, object]:
        ipam = {
            "type": "host-local",
            "ranges": [[{"subnet": self.addresses.pods, "gateway": self.addresses.node}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {"type": "bridge", "bridge": self.bridge, "ipam": ipam}
        return {"cniVersion": "1.0.0", "name": self.bridge, "plugins": [bridge]}

    def _kubelet_config(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.addresses.node,
            "port": KUBELET_PORT,
            "healthzBindAddress": self.addresses.node,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.control / "kubelet-client.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.cgroup_root,
            # From 1.35 on the kubelet refuses version 1 of cgroups otherwise.
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": ["none"],
            "localStorageCapacityIsolation": False,
            "evictionHard": _NEVER_EVICT,
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "makeIPTablesUtilChains": False,
            # There is no DNS: here a query is refused at once instead of waited for.
            "clusterDNS": [self.addresses.node],
            "clusterDomain": "cluster.local",
            # How soon a failed Prepare is tried again; the default takes up to a minute and a half.
            "syncFrequency": "10s",
            "volumePluginDir": _VOLUME_PLUGINS,
            "featureGates": dict.fromkeys(self.node_profile.gates, True),
        }
