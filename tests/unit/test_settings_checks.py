from __future__ import annotations

from pathlib import Path

import pytest

from dra_driver.errors import SettingsError
from dra_driver.settings import Check, Settings, load


def _refuse(settings: Settings) -> None:
    raise SettingsError(f"--cdi-root {settings.cdi_root} will not do")


_REFUSAL = Check(settings=("cdi_root",), run=_refuse)


def test_settings_list_what_checks_refuse_beside_what_is_malformed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text("cdi-root: /of/file\nrun-dir: relative\n")
    monkeypatch.setenv("GPUSLICE_STATE_DIR", "relative")
    with pytest.raises(SettingsError) as caught:
        load({"config": str(config), "node_name": "A_"}, checks=(_REFUSAL,))
    problems = str(caught.value).splitlines()
    assert len(problems) == 4
    assert problems[-1] == "--cdi-root /of/file will not do"


def test_settings_leave_out_a_check_of_what_is_malformed_or_cannot_be_read(tmp_path: Path) -> None:
    for flags in ({"cdi_root": "relative"}, {"config": str(tmp_path / "nowhere.yaml")}):
        with pytest.raises(SettingsError) as caught:
            load(flags, checks=(_REFUSAL,))
        assert "will not do" not in str(caught.value)
