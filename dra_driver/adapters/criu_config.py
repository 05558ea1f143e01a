"""The files in which CRIU is told of the checkpoint hook, below the host's /etc/criu.

runc lets CRIU read runc.conf. crun lets it read crun.conf and, only where there is none, runc.conf:
so a crun.conf gets our lines where it is there, and is never made.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from dra_driver.adapters.host_files import (
    HostFile,
    ensure_folder,
    folder_exists,
    read_file,
    replace_file,
)
from dra_driver.errors import AdapterError
from dra_driver.plan.criu_config import (
    ConfigRefused,
    Installed,
    Origin,
    State,
    merge,
    remove,
    state,
)

ALWAYS: Final = "runc.conf"
WHERE_PRESENT: Final = "crun.conf"
_FOLDER = "etc/criu"
_MODE = 0o644


class CriuConfig:
    """Both files; a context of one process: what two do at one time may be undone by either.

    Args:
        host_root: where the host's / is seen.
        owner: uid that owns what root relies on.
    """

    def __init__(self, *, host_root: Path, owner: int = 0) -> None:
        self._root = host_root
        self._folder = host_root / _FOLDER
        self._owner = owner

    def install(self, script: str) -> None:
        """Let CRIU run `script`, a path on the host; repeatable, and renews an earlier path.

        Raises:
            AdapterError: a file is not understood or cannot be written; no file is half-written.
        """
        changes = [(name, file, self._merged(name, file, script)) for name, file in self._files()]
        folder_is_new = ensure_folder(self._root, self._folder, owner=self._owner)
        for name, file, text in changes:
            new = merge(None, script, folder_is_new=True) if folder_is_new else text
            self._write(name, file, new)

    def uninstall(self) -> None:
        """Take our lines out, and what was made for them; repeatable.

        Raises:
            AdapterError: our lines are no longer as we wrote them, or a file cannot be written.
        """
        for name, file in self._files():
            if file is None:
                continue
            before = _text(file)
            stands = state(before)
            try:
                after = remove(before)
            except ConfigRefused as error:
                raise self._refused(name, error) from error
            if after is not None:
                self._write(name, file, after)
                continue
            self._delete(name)
            if isinstance(stands, Installed) and stands.origin is Origin.NO_FOLDER:
                with suppress(OSError):  # somebody else's files are in it by now
                    self._folder.rmdir()

    def states(self) -> tuple[tuple[str, State], ...]:
        """How each file stands, by its path on the host.

        Raises:
            AdapterError: one cannot be read.
        """
        return tuple(
            (f"/{_FOLDER}/{name}", state(None if file is None else _text(file)))
            for name, file in self._files()
        )

    def _files(self) -> list[tuple[str, HostFile | None]]:
        if not folder_exists(self._root, self._folder, owner=self._owner):
            return [(ALWAYS, None)]
        files = [(name, read_file(self._folder / name)) for name in (WHERE_PRESENT, ALWAYS)]
        return [(name, file) for name, file in files if file is not None or name == ALWAYS]

    def _merged(self, name: str, file: HostFile | None, script: str) -> str:
        try:
            return merge(None if file is None else _text(file), script)
        except ConfigRefused as error:
            raise self._refused(name, error) from error

    def _refused(self, name: str, error: ConfigRefused) -> AdapterError:
        return AdapterError(f"cannot change /{_FOLDER}/{name} on the host: {error}", permanent=True)

    def _write(self, name: str, file: HostFile | None, text: str) -> None:
        content = text.encode(errors="surrogateescape")
        if file is None:
            file = HostFile(content=b"", mode=_MODE, uid=self._owner, gid=self._owner)
        elif file.content == content:
            return
        new = HostFile(content=content, mode=file.mode, uid=file.uid, gid=file.gid)
        replace_file(self._folder / name, new)

    def _delete(self, name: str) -> None:
        path = self._folder / name
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise AdapterError(f"cannot remove {path}: {error.strerror}") from error


def _text(file: HostFile) -> str:
    """Every byte as some character, for `_write` to give back."""
    return file.content.decode(errors="surrogateescape")
