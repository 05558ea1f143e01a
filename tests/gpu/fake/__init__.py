"""A machine without a GPU that steps can be tried on: a stub of libcuda and of MPS's control."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.gpu.site import UNPRIVILEGED, Site, python_for

_HERE = Path(__file__).parent


def fake_site(work: str, *, control_program: str = "") -> Site | None:
    """None where there is no compiler; a real `control_program` runs without a GPU as well."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library, control = Path(work) / "libcuda.so", Path(work) / "nvidia-cuda-mps-control"
    flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, "-o", library, _HERE / "cuda.c"], check=True)
    program = (_HERE / "control.py").read_text(encoding="utf-8")
    control.write_text(f"#!{python_for(UNPRIVILEGED)} -IS\n{program}", encoding="utf-8")
    control.chmod(0o755)
    return Site(
        work=work,
        control=control_program or str(control),
        gpu="GPU-fa4e0000-0000-4000-8000-000000000000",
        driver="615.0.0",
        libcuda=str(library),
        pace=0.02,
        nvml=False,
    )
