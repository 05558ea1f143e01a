"""A /proc of processes that a test makes up."""

from __future__ import annotations

from pathlib import Path

OWN_MOUNTS = """\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
22 21 0:21 / /run rw,nosuid shared:2 - tmpfs tmpfs rw,mode=755
"""
"""Of a process on the host with /run on a tmpfs of its own."""


class FakeProc:
    """Writes files as proc(5) has them.

    Args:
        folder: becomes the /proc.
        own: mountinfo of the process that looks.
    """

    def __init__(self, folder: Path, *, own: str = OWN_MOUNTS) -> None:
        self.path = folder
        (folder / "self").mkdir(parents=True)
        (folder / "self/mountinfo").write_text(own)

    def add(
        self,
        pid: int,
        *,
        started: int = 500,
        parent: int = 0,
        cgroup: str = "0::/init.scope",
        mounts: tuple[str, ...] = (),
        name: str = "python3",
        state: str = "S",
    ) -> None:
        """Add a process or replace it; `mounts` are "device root point"."""
        self._write(self.path / str(pid), pid, started, name, state, parent=parent)
        (self.path / str(pid) / "cgroup").write_text(f"{cgroup}\n")
        (self.path / str(pid) / "mountinfo").write_text(mountinfo(*mounts))

    def add_thread(
        self, pid: int, thread: int, *, cgroup: str, mounts: tuple[str, ...], state: str = "S"
    ) -> None:
        folder = self.path / str(pid) / "task" / str(thread)
        self._write(folder, thread, 700, "worker", state)
        (folder / "cgroup").write_text(f"{cgroup}\n")
        (folder / "mountinfo").write_text(mountinfo(*mounts))

    def _write(
        self, folder: Path, pid: int, started: int, name: str, state: str, *, parent: int = 0
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        between = " ".join((str(parent), *("0" for _ in range(17))))
        (folder / "stat").write_text(f"{pid} ({name}) {state} {between} {started} 0 0\n")


def mountinfo(*mounts: str) -> str:
    lines = []
    for number, mount in enumerate(mounts, start=100):
        device, root, point = mount.split(" ")
        lines.append(f"{number} 99 {device} {root} {point} ro,nosuid master:2 - tmpfs tmpfs rw\n")
    return "".join(lines)
