"""Mounts as the kernel lists them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dra_driver.adapters.mountinfo import Mount, mounts, place_of
from tests.fakes.proc import OWN_MOUNTS


@given(st.text())
def test_mounts_never_raise_on_hostile_names(text: str) -> None:
    list(mounts(text))
    list(mounts(f"1 2 0:21 {text} {text} rw - tmpfs t rw"))
    place_of("/run/gpuslice", f"{OWN_MOUNTS}{text}")


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1))
def test_mounts_give_names_as_they_were_before_the_kernel_escaped_them(name: str) -> None:
    escaped = "".join(f"\\{ord(each):03o}" if each in " \t\n\\#" else each for each in name)

    assert list(mounts(f"1 2 0:21 /{escaped} /p/{escaped} rw - tmpfs t rw\n")) == [
        Mount(device="0:21", root=f"/{name}", point=f"/p/{name}")
    ]
