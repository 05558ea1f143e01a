"""Programs and libraries of the NVIDIA driver, run from below its root by this process.

The driver's root may be the root of another system: its own C library must stay out of the search
path of programs, so the driver's libraries are linked into a folder of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock

from dra_driver.adapters.mps_folders import public_folder
from dra_driver.errors import AdapterError

_PROGRAM_FOLDERS = (
    "usr/bin",
    "usr/sbin",
    "usr/local/bin",
    "usr/local/nvidia/bin",
    "bin",
    "sbin",
    "opt/bin",
)
_LIBRARY_FOLDERS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/local/nvidia/lib64",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
    "lib",
)
_LIBRARIES = ("libcuda.so*", "libcudadebugger.so*", "libnvidia-*.so*")
_CUDA = "libcuda.so.1"
_CONTROL = "nvidia-cuda-mps-control"
_SMI = "nvidia-smi"
_OWN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class DriverPrograms:
    """Looks anew at every call, as the driver may be installed later or be replaced.

    Args:
        driver_root: where the driver's files are seen.
        run_dir: gets the folder of links, where `driver_root` is not "/".
        control_path: nvidia-cuda-mps-control; None: looked for below `driver_root`.
        nvidia_smi_path: the same of nvidia-smi.
    """

    def __init__(
        self,
        *,
        driver_root: Path,
        run_dir: Path,
        control_path: Path | None = None,
        nvidia_smi_path: Path | None = None,
    ) -> None:
        self._root = driver_root
        self._run_dir = run_dir
        self._links = run_dir / "mps/lib"
        self._control_path = control_path
        self._nvidia_smi_path = nvidia_smi_path
        self._lock = Lock()

    def control(self) -> Path:
        """The program nvidia-cuda-mps-control.

        Raises:
            AdapterError: there is none.
        """
        return self._program(
            _CONTROL, self._control_path, flag="--mps-control-path", part="compute utilities"
        )

    def nvidia_smi(self) -> Path:
        """The program nvidia-smi.

        Raises:
            AdapterError: there is none.
        """
        return self._program(
            _SMI, self._nvidia_smi_path, flag="--nvidia-smi-path", part="utilities"
        )

    def cuda(self) -> Path:
        """The library libcuda.so.1.

        Raises:
            AdapterError: there is none.
        """
        folder = self._library_folder()
        if folder is None:
            raise AdapterError(
                f"no {_CUDA} in the library folders of --driver-root {self._root}: check that the"
                " NVIDIA driver is installed there"
            )
        return folder / _CUDA

    def environment(self) -> Mapping[str, str]:
        """What its programs need: search paths with the driver's own first, and plain English.

        Raises:
            AdapterError: the folder of links cannot be written.
        """
        folders = [self._root / folder for folder in _PROGRAM_FOLDERS]
        if self._control_path is not None:
            # Its server is looked for on PATH, and some put the one into bin, the other into sbin.
            own = self._control_path.parent
            folders = [own, own.parent / "sbin", *folders]
        path = ":".join(str(folder) for folder in folders if folder.is_dir())
        environment = {"PATH": f"{path}:{_OWN_PATH}", "LANG": "C"}
        folder = self._library_folder()
        if folder is not None and self._root != Path("/"):
            with self._lock:
                self._link(folder)
            environment["LD_LIBRARY_PATH"] = str(self._links)
        return environment

    def _program(self, name: str, given: Path | None, *, flag: str, part: str) -> Path:
        if given is not None:
            if not os.access(given, os.X_OK):
                raise AdapterError(
                    f"{flag} {given} is no program: name the file {name} of the driver, or leave"
                    " the flag out"
                )
            return given
        for folder in _PROGRAM_FOLDERS:
            path = self._root / folder / name
            if os.access(path, os.X_OK):
                return path
        raise AdapterError(
            f"no {name} in the program folders of --driver-root {self._root}: install the driver's"
            f" {part}, or name the program with {flag}"
        )

    def _library_folder(self) -> Path | None:
        for folder in _LIBRARY_FOLDERS:
            if os.path.lexists(self._root / folder / _CUDA):
                return self._root / folder
        return None

    def _link(self, folder: Path) -> None:
        try:
            wanted = dict(self._targets(folder))
            # The MPS server loads them, and may run as the user of a pod.
            public_folder(self._links, below=self._run_dir)
            found = {each.name: each.readlink() for each in self._links.iterdir()}
            for name in found.keys() - wanted.keys():
                (self._links / name).unlink()
            for name, target in wanted.items():
                if found.get(name) != target:
                    fresh = self._links / f".{name}"
                    fresh.unlink(missing_ok=True)
                    fresh.symlink_to(target)
                    fresh.rename(self._links / name)
        except OSError as error:
            raise AdapterError(
                f"cannot link the driver's libraries into {self._links} (--run-dir): {error}"
            ) from error

    def _targets(self, folder: Path) -> Iterator[tuple[str, Path]]:
        for pattern in _LIBRARIES:
            for path in folder.glob(pattern):
                target = path.readlink() if path.is_symlink() else None
                if target is not None and target.is_absolute():
                    # It is meant as seen from the driver's root.
                    yield path.name, self._root / target.relative_to("/")
                else:
                    yield path.name, path
