"""The command line behind hack/cluster, whose head describes it. Needs the standard library only."""

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.kube import driver_install
from tests.kube.build import (
    KUBERNETES_VERSION,
    clusters_folder,
    containerd_folder,
    criu_folder,
    kubernetes_binary,
    kubernetes_versions,
)
from tests.kube.cluster import COMPONENTS, Cluster
from tests.kube.criu import allow_checkpoints, clear_criu, install_criu
from tests.kube.process import NotReadyError
from tests.kube.profiles import PROFILES


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except NotReadyError as error:
        _say(str(error))
        return 1
    except subprocess.CalledProcessError as error:
        # It has said why on standard error.
        _say(f"{Path(error.cmd[0]).name} failed")
        return 1
    except KeyboardInterrupt:
        _say("interrupted; what was started is ended again")
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hack/cluster")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    name = argparse.ArgumentParser(add_help=False)
    name.add_argument("--name", type=_name, default="default")
    version = argparse.ArgumentParser(add_help=False)
    version.add_argument(
        "--kubernetes", choices=kubernetes_versions(), default=KUBERNETES_VERSION, dest="version"
    )
    up = commands.add_parser("up", parents=[name, version])
    up.add_argument("--profile", choices=sorted(PROFILES), default="default")
    up.add_argument("--simulate", choices=driver_install.ready_nodes(), default=None)
    up.add_argument("--checkpoint", action="store_true")
    up.set_defaults(run=_up)
    commands.add_parser("down", parents=[name]).set_defaults(run=_down)
    status = commands.add_parser("status")
    status.add_argument("--name", type=_name, default=None)
    status.set_defaults(run=_status)
    load = commands.add_parser("load", parents=[name])
    load.add_argument("archive", type=Path)
    load.set_defaults(run=_load)
    commands.add_parser("prepare", parents=[version]).set_defaults(run=_prepare)
    return parser


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,28}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(
            f"'{text}' is no name for a cluster: use up to 30 of a-z, 0-9, '-' and '.'"
        )
    return text


def _up(options: argparse.Namespace) -> int:
    cluster = Cluster(
        clusters_folder() / options.name,
        version=options.version,
        profile=PROFILES[options.profile],
        say=_say,
    )
    if cluster.folder.exists():
        _say(f"there is a cluster '{options.name}': end it by 'hack/cluster down' or name another")
        return 1
    if options.checkpoint:
        criu_folder()
    cluster.up()
    if options.checkpoint:
        install_criu(cluster)
        clear_criu(cluster)
        allow_checkpoints(cluster.admin)
    if options.simulate is not None:
        _say(f"installing the driver, with the simulated GPUs of {options.simulate}")
        driver_install.install(cluster, simulate=options.simulate)
    _say(f"kubectl for it, where the machine has none: {cluster.folder / 'kubectl'}")
    print(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy")):
        print(f"export NO_PROXY=$NO_PROXY,{cluster.state.addresses.services}")
    return 0


def _down(options: argparse.Namespace) -> int:
    folder = clusters_folder() / options.name
    existed = folder.exists()
    # Also without the folder: it is the last that goes.
    Cluster(folder).down()
    _say(f"cluster '{options.name}' is gone" if existed else f"there is no '{options.name}'")
    return 0


def _status(options: argparse.Namespace) -> int:
    names = [options.name] if options.name else _names()
    states = [_show(name) for name in names]
    if not names:
        print("no clusters")
    return 0 if all(states) else 1


def _show(name: str) -> bool:
    """Print one cluster's state, and answer whether all of it runs."""
    cluster = Cluster.find(clusters_folder() / name)
    if cluster is None:
        print(f"{name}: no cluster")
        return False
    state = cluster.state
    owner = "" if state.owner is None else f", of process {state.owner.pid}"
    ended = " that has ended" if state.orphaned else ""
    print(f"{name}: Kubernetes {state.version}, profile {state.profile}{owner}{ended}")
    pids = {component: cluster.pid(component) for component in COMPONENTS}
    for component, pid in pids.items():
        print(f"  {component:<24} {f'process {pid}' if pid else 'does not run'}")
    print(f"  {'files':<24} {cluster.folder}")
    return all(pids.values())


def _load(options: argparse.Namespace) -> int:
    if not options.archive.is_file():
        _say(f"there is no file {options.archive}")
        return 1
    cluster = Cluster.find(clusters_folder() / options.name)
    if cluster is None:
        _say(f"there is no cluster '{options.name}': start it by 'hack/cluster up'")
        return 1
    cluster.load_image(options.archive)
    return 0


def _prepare(options: argparse.Namespace) -> int:
    kubernetes_binary(options.version, whole_cluster=True)
    containerd_folder()
    return 0


def _names() -> list[str]:
    folder = clusters_folder()
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def _say(text: str) -> None:
    print(f"cluster: {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
