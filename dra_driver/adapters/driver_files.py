"""Files and device nodes of the NVIDIA driver: from the toolkit's own spec, else looked up.

Paths in a CDI spec are the host's. This process sees the host's /dev below `host_root`, and the
driver's files below `driver_root`, which itself may lie below `host_root`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from threading import Lock

from dra_driver import log
from dra_driver.adapters.toolkit_spec import FILE_NAMES, ToolkitSpec, parse_toolkit_spec
from dra_driver.errors import AdapterError
from dra_driver.model.cdi import DeviceNode, DriverEdits, Edits, Hook, Mount
from dra_driver.model.device import GpuFacts, Inventory

_log = log.get(__name__)

_LIBRARY_FOLDERS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
    "lib",
)
_CUDA = "libcuda.so"
_LIBRARIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (_CUDA, ("libcuda.so.1", "libcuda.so")),
    ("libnvidia-ml.so", ("libnvidia-ml.so.1",)),
    ("libnvidia-ptxjitcompiler.so", ("libnvidia-ptxjitcompiler.so.1",)),
    ("libnvidia-nvvm.so", ("libnvidia-nvvm.so.4",)),
    ("libnvidia-gpucomp.so", ()),
    ("libcudadebugger.so", ("libcudadebugger.so.1",)),
)
"""A library without its version, and the names that programs load it by; none: its full name.

Mounted under these names directly, so that no hook has to make links.
"""

_PROGRAMS = ("usr/bin/nvidia-smi",)
_REQUIRED_NODES = ("nvidiactl", "nvidia-uvm")
_OPTIONAL_NODES = ("nvidia-uvm-tools", "nvidia-modeset")
_IMAGE_LIBRARY_FOLDER = PurePosixPath("/usr/local/nvidia/lib64")
"""NVIDIA's base images look here; other images look in the driver's own folder."""

_BY_PATH = "/by-path/pci-"
_HOOK = "usr/bin/nvidia-cdi-hook"

_Identity = tuple[str, int, int, int]


class NvidiaDriverFiles:
    """The DriverFiles of a node with the NVIDIA driver.

    Args:
        driver_root: where the driver's files are seen.
        host_root: where the host's root is seen.
        cdi_folders: where the toolkit's spec may be, in order of precedence.
    """

    def __init__(
        self, *, driver_root: Path, host_root: Path, cdi_folders: tuple[Path, ...]
    ) -> None:
        self._driver_root = driver_root
        self._host_root = host_root
        self._candidates = tuple(folder / name for folder in cdi_folders for name in FILE_NAMES)
        self._lock = Lock()
        self._specs: dict[Path, tuple[_Identity, ToolkitSpec | None]] = {}
        self._complained: set[tuple[object, ...]] = set()

    def edits(self, inventory: Inventory) -> DriverEdits:
        """What containers need of the driver that `inventory` speaks of, as the node is now.

        A GPU of which no device node is known has no edits.

        Raises:
            AdapterError: the driver's libraries or control nodes are not there.
        """
        with self._lock:
            spec = self._toolkit_spec(inventory)
        if spec is None:
            common = self._minimal(inventory.driver_version)
            devices: dict[str, Edits] = {}
        else:
            common, devices = spec.common, dict(spec.devices)
        per_gpu = ((gpu.uuid, self._gpu(gpu, devices)) for gpu in inventory.gpus)
        return DriverEdits(
            common=common, per_gpu={uuid: each for uuid, each in per_gpu if each is not None}
        )

    def _gpu(self, gpu: GpuFacts, devices: dict[str, Edits]) -> Edits | None:
        node = f"nvidia{gpu.minor}"
        for name in (gpu.uuid, str(gpu.index)):
            found = devices.get(name)
            if found is not None and _is_of(found, gpu):
                return found
        own = self._node(node)
        return Edits(device_nodes=(own,)) if own is not None else None

    def _toolkit_spec(self, inventory: Inventory) -> ToolkitSpec | None:
        for path in self._candidates:
            spec = self._spec(path)
            if spec is not None and self._fits(spec, path, inventory.driver_version):
                return spec
        return None

    def _spec(self, path: Path) -> ToolkitSpec | None:
        identity = _identity(path)
        if identity is None:
            return None
        known = self._specs.get(path)
        if known is None or known[0] != identity:
            known = self._specs[path] = (identity, self._parsed(path, identity))
        return known[1]

    def _parsed(self, path: Path, identity: _Identity) -> ToolkitSpec | None:
        try:
            return parse_toolkit_spec(path, path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            self._complain("Cannot use a CDI spec of NVIDIA's toolkit", path, str(error), identity)
            return None

    def _fits(self, spec: ToolkitSpec, path: Path, driver_version: str | None) -> bool:
        paths = [mount.host_path for mount in spec.common.mounts]
        if driver_version is None or any(each.endswith(f".so.{driver_version}") for each in paths):
            return True
        reason = f"it names no library of driver {driver_version}; run nvidia-ctk cdi generate"
        self._complain("Cannot use a CDI spec of NVIDIA's toolkit", path, reason, driver_version)
        return False

    def _complain(self, event: str, path: Path, reason: str, once: object) -> None:
        if (path, once) not in self._complained:
            self._complained.add((path, once))
            _log.warning(event, file=str(path), reason=reason)

    def _minimal(self, driver_version: str | None) -> Edits:
        libraries = tuple(self._libraries(driver_version))
        programs = tuple(
            self._mount(self._driver_root / program, PurePosixPath("/", program))
            for program in _PROGRAMS
            if (self._driver_root / program).exists()
        )
        return Edits(
            device_nodes=tuple(self._control_nodes()),
            mounts=(*libraries, *programs),
            hooks=self._hooks(libraries),
        )

    def _libraries(self, driver_version: str | None) -> Iterator[Mount]:
        folder, version = self._library_folder(driver_version)
        inside = PurePosixPath("/") / folder
        for stem, names in _LIBRARIES:
            file = self._driver_root / folder / f"{stem}.{version}"
            if file.exists():
                for name in names or (file.name,):
                    yield self._mount(file, inside / name)
                    yield self._mount(file, _IMAGE_LIBRARY_FOLDER / name)

    def _library_folder(self, driver_version: str | None) -> tuple[str, str]:
        pattern = f"{_CUDA}.{driver_version}" if driver_version else f"{_CUDA}.[0-9]*.[0-9]*"
        for folder in _LIBRARY_FOLDERS:
            for file in sorted((self._driver_root / folder).glob(pattern)):
                return folder, file.name.removeprefix(f"{_CUDA}.")
        raise AdapterError(
            f"no {pattern} in the library folders of {self._driver_root}: check that the NVIDIA"
            " driver is installed there, or set --driver-root to where it is"
        )

    def _mount(self, file: Path, container_path: PurePosixPath) -> Mount:
        return Mount(host_path=self._on_host(file), container_path=str(container_path))

    def _control_nodes(self) -> Iterator[DeviceNode]:
        for name in (*_REQUIRED_NODES, *_OPTIONAL_NODES):
            node = self._node(name)
            if node is not None:
                yield node
            elif name in _REQUIRED_NODES:
                raise AdapterError(
                    f"device node /dev/{name} does not exist: load the NVIDIA driver, or run"
                    " nvidia-modprobe -u -c0 on the node"
                )

    def _node(self, name: str) -> DeviceNode | None:
        if (self._host_root / "dev" / name).exists():
            return DeviceNode(path=f"/dev/{name}")
        own = self._driver_root / "dev" / name
        # A driver in a container of its own may make its nodes there only.
        return (
            DeviceNode(path=f"/dev/{name}", host_path=self._on_host(own)) if own.exists() else None
        )

    def _hooks(self, libraries: Iterable[Mount]) -> tuple[Hook, ...]:
        """Let the image's dynamic linker find the libraries, where the host has the tool for it."""
        if not (self._host_root / _HOOK).exists():
            return ()
        folders = sorted({str(PurePosixPath(each.container_path).parent) for each in libraries})
        args = [arg for folder in folders for arg in ("--folder", folder)]
        hook = Hook(
            name="createContainer",
            path=f"/{_HOOK}",
            args=("nvidia-cdi-hook", "update-ldcache", *args),
        )
        return (hook,)

    def _on_host(self, path: Path) -> str:
        if path.is_relative_to(self._host_root):
            return str(PurePosixPath("/") / path.relative_to(self._host_root))
        return str(path)


def _is_of(edits: Edits, gpu: GpuFacts) -> bool:
    """Whether a toolkit's device is this board now: index and minor change across reboots."""
    if all(node.path != f"/dev/nvidia{gpu.minor}" for node in edits.device_nodes):
        return False
    links = [arg for hook in edits.hooks for arg in hook.args if _BY_PATH in arg]
    return gpu.pci_bus_id is None or all(f"{_BY_PATH}{gpu.pci_bus_id}" in link for link in links)


def _identity(path: Path) -> _Identity | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - many times a second
    except OSError:
        return None
    return str(path), status.st_ino, status.st_mtime_ns, status.st_size
