"""Commands about checkpoints: for people, and what these run in the pods of plugins."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dra_driver.cli.checkpoint_options import (
    ArchiveOptions,
    CheckpointOptions,
    HookOptions,
    OperationsOptions,
    RestoreOptions,
)
from dra_driver.cli.options import with_options, with_settings
from dra_driver.cli.people import for_people, print_json
from dra_driver.errors import SettingsError

if TYPE_CHECKING:
    from dra_driver.app.restore_command import RestoreRequest

_SERVICE = ("config", "run_dir", "checkpoint_socket")
_ARCHIVES = ("config", "checkpoints_dir", "host_root")
_TIMEOUT_MAX_S = 3600


@with_settings(())
@with_options(CheckpointOptions)
def checkpoint(flags: Mapping[str, str], options: CheckpointOptions) -> int:
    """Checkpoint a container through its node's kubelet.

    It runs on, and the archive stays on its node. You need the right to 'create nodes/proxy'; and
    'pods/exec' in the driver's namespace for --output, which needs the component
    checkpoint-archives, for --driver-owned and --host-only, and to learn the operation's name.
    """
    for_people(flags)
    from dra_driver.app.checkpoint_command import checkpoint  # noqa: PLC0415
    from dra_driver.app.checkpoint_values import CheckpointWish  # noqa: PLC0415
    from dra_driver.cli.checkpoint_view import print_checkpoint  # noqa: PLC0415
    from dra_driver.cli.progress import StderrProgress  # noqa: PLC0415

    if not 0 < options.timeout <= _TIMEOUT_MAX_S:
        raise SettingsError(
            f"--timeout is {options.timeout}: give seconds from 1 to {_TIMEOUT_MAX_S}"
        )
    wish = CheckpointWish(
        pod=options.pod,
        namespace=options.namespace,
        container=options.container,
        output=_path(options.output),
        timeout_s=options.timeout,
        driver_owned=options.driver_owned,
        host_only=options.host_only,
        kubeconfig=_path(options.kubeconfig),
        context=options.context,
        driver_namespace=options.driver_namespace,
    )
    with StderrProgress() as progress:
        report = checkpoint(wish, progress)
    if options.as_json:
        print_json(report.to_json())
    else:
        print_checkpoint(report)
    return 1 if report.failure else 0


@with_settings(())
@with_options(RestoreOptions)
def restore(flags: Mapping[str, str], options: RestoreOptions) -> int:
    """Make a checkpoint's image, and print what restores it.

    The image goes to a file or into a node's containerd, which needs the component
    checkpoint-archives and the right to 'pods/exec' in the driver's namespace. The claim and the
    Pod that use it are printed: 'gpuslice restore … | kubectl apply -f -' creates them.
    """
    for_people(flags)
    from dra_driver.app.restore_command import restore  # noqa: PLC0415
    from dra_driver.cli.checkpoint_view import print_restore  # noqa: PLC0415
    from dra_driver.cli.progress import StderrProgress  # noqa: PLC0415

    with StderrProgress() as progress:
        report = restore(_request(options), progress)
    if options.as_json:
        print_json(report.to_json())
    else:
        print_restore(report)
    return 0


@with_settings((*_SERVICE, "node_name"))
@with_options(OperationsOptions)
def operations(flags: Mapping[str, str], options: OperationsOptions) -> int:
    """List checkpoints and restores that fail or go on.

    Each node is asked by a command in its plugin's pod: you need 'pods/exec' in the driver's
    namespace. A node that cannot be asked is an exit status of 1.
    """
    settings = for_people(flags)
    from dra_driver.app import operations_command as command  # noqa: PLC0415
    from dra_driver.cli.checkpoint_view import print_operations  # noqa: PLC0415

    wish = command.OperationsWish(
        namespace=options.namespace,
        node=options.node,
        ended_well=options.ended_well,
        kubeconfig=_path(options.kubeconfig),
        context=options.context,
        driver_namespace=options.driver_namespace,
    )
    local = options.local
    report = command.local_operations(settings, wish) if local else command.operations(wish)
    if options.as_json:
        print_json(report.to_json())
    else:
        print_operations(report)
    return 1 if report.unknown else 0


@with_settings(_SERVICE)
@with_options(HookOptions)
def hook(flags: Mapping[str, str], options: HookOptions) -> int:
    """Call this node's checkpoint service, from the plugin's pod.

    Requests and answers are those of gpuslice.checkpoint.v1alpha1, in JSON.
    """
    settings = for_people(flags)
    from dra_driver.app.node_side import hook_call  # noqa: PLC0415

    print_json(hook_call(settings, options.method, options.request))
    return 0


@with_settings(_ARCHIVES)
@with_options(ArchiveOptions)
def archive(flags: Mapping[str, str], options: ArchiveOptions) -> int:
    """Read an archive of this node: what checkpoint and restore run in the plugin's pod."""
    settings = for_people(flags)
    from dra_driver.app import node_side  # noqa: PLC0415

    match options.action:
        case "check":
            node_side.check_archives(settings)
        case "facts":
            print_json(node_side.archive_facts(settings, options.path))
        case "send":
            digest = node_side.send_archive(settings, options.path, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            typer.echo(digest, err=True)
        case "import":
            print_json(
                node_side.import_archive(
                    settings,
                    options.path,
                    image=options.image,
                    container=options.container,
                    ctr=options.ctr,
                    socket=options.containerd_socket,
                )
            )
        case other:
            raise SettingsError(f"ACTION is {other!r}: give check, facts, send or import")
    return 0


def _request(options: RestoreOptions) -> RestoreRequest:
    from dra_driver.app.restore_command import RestoreRequest  # noqa: PLC0415

    return RestoreRequest(
        archive=options.archive,
        operation=options.operation,
        node=options.node,
        load=options.load,
        output=_path(options.output),
        image=options.image,
        name=options.name,
        namespace=options.namespace,
        container=options.container,
        architecture=options.architecture,
        ctr=options.ctr,
        containerd_socket=options.containerd_socket,
        driver=options.driver_name,
        kubeconfig=_path(options.kubeconfig),
        context=options.context,
        driver_namespace=options.driver_namespace,
    )


def _path(given: str) -> Path | None:
    return Path.cwd() / given if given else None
