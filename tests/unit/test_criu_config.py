"""Our lines in CRIU's configuration: in, renewed and out, and every other byte as it was."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dra_driver.plan.criu_config import (
    Absent,
    ConfigRefused,
    Foreign,
    Installed,
    NotUnderstood,
    Origin,
    merge,
    remove,
    state,
)

SCRIPT = "/opt/gpuslice/bin/gpuslice-hook"
OURS = f"""\
# gpuslice-hook: these three lines are gpuslice's
action-script {SCRIPT}
# gpuslice-hook: end
"""
LINES = (
    "",
    "# comment",
    "#",
    "tcp-established",
    "log-file /var/log/criu.log",
    "\taction-script  /usr/local/bin/other # why",
    'action-script "/usr/local/bin/a \\"b"',
    "ghost-limit=1M",
    "v4",
    "broken\rline",
    "%s",
    'quoted "',
    "action-script /x/gpuslice-hook",
    "# gpuslice-hook: end",
    "# gpuslice-hook: these three lines are gpuslice's",
    f"action-script {SCRIPT}",
)
_files = st.none() | st.text() | st.lists(st.sampled_from(LINES)).map("\n".join)
_scripts = st.from_regex(r"/[A-Za-z0-9._/+@-]{0,30}", fullmatch=True)


@given(existing=_files, script=_scripts, folder_is_new=st.booleans())
@example(existing="", script=SCRIPT, folder_is_new=True)
def test_file_is_as_it_was_when_our_lines_are_gone(
    existing: str | None, script: str, *, folder_is_new: bool
) -> None:
    assume(isinstance(state(existing), Absent))
    merged = merge(existing, script, folder_is_new=folder_is_new)
    assert isinstance(state(merged), Installed)
    assert remove(merged) == existing


@given(_files, _scripts)
def test_files_are_merged_or_refused_whatever_is_in_them(existing: str | None, script: str) -> None:
    try:
        merged = merge(existing, script)
    except ConfigRefused:
        assert isinstance(state(existing), Foreign | NotUnderstood)
        return
    assert merge(merged, script) == merged
    stands = state(merged)
    assert isinstance(stands, Installed)
    assert stands.script == script


@given(_files, _files, _scripts, _scripts)
def test_script_is_renewed_in_place_when_others_wrote_around_it(
    before: str | None, after: str | None, old: str, new: str
) -> None:
    around = ((before or "") + "\n", after or "")
    assume("# gpuslice-hook:" not in "".join(around))
    existing = OURS.replace(SCRIPT, old).join(around)
    assert merge(existing, new) == OURS.replace(SCRIPT, new).join(around)
    assert remove(existing) == "".join(around)


def test_lines_go_first_when_they_are_merged() -> None:
    assert merge("tcp-close", SCRIPT) == f"{OURS}tcp-close"


@pytest.mark.parametrize("origin", [Origin.NO_FILE, Origin.NO_FOLDER])
def test_file_tells_what_goes_with_it_when_it_is_ours(origin: Origin) -> None:
    merged = merge(None, SCRIPT, folder_is_new=origin is Origin.NO_FOLDER)
    assert state(merged) == Installed(script=SCRIPT, origin=origin)
    assert state(merge(merged, "/new")) == Installed(script="/new", origin=origin)
    assert remove(merged) is None
    assert remove(f"tcp-close\n{merged}") == "tcp-close\n"


@pytest.mark.parametrize("ending", ["", "\n"])
def test_lines_are_found_when_the_file_s_last_newline_is_gone(ending: str) -> None:
    existing = "tcp-close\n" + OURS.removesuffix("\n") + ending
    assert merge(existing, SCRIPT) == existing
    assert remove(existing) == "tcp-close\n"


@pytest.mark.parametrize(
    ("existing", "line", "reason"),
    [
        ("tcp-close\n--tcp-close\n", 2, "is not an option of CRIU"),
        ("[criu]\n", 1, "is not an option of CRIU"),
        ("\n\n\ufefftcp-close", 3, "is not an option of CRIU"),
        ("tcp-close\r\n", 1, "holds a control character"),
        ("log-file /a\0b", 1, "holds a control character"),
        ('log-file "/a b', 1, "has a quote that does not end"),
        (OURS + OURS, 1, "begins lines of gpuslice that somebody changed"),
        ("tcp-close\n" + OURS.replace(SCRIPT, f"{SCRIPT} --x"), 2, "begins lines of gpuslice"),
        (OURS.replace("action", "#action"), 1, "begins lines of gpuslice"),
        (OURS.replace("end", "End"), 1, "begins lines of gpuslice"),
        (" " + OURS, 1, "begins lines of gpuslice"),
        ("# gpuslice-hook: end", 1, "begins lines of gpuslice"),
    ],
)
def test_file_is_refused_when_it_is_not_understood(existing: str, line: int, reason: str) -> None:
    with pytest.raises(ConfigRefused, match=f"^line {line} {reason}"):
        merge(existing, SCRIPT)


@pytest.mark.parametrize(
    "existing",
    [
        "action-script /x/gpuslice-hook",
        'action-script="/x/gpuslice-hook"',
        " action-script\t/x/gpuslice-hook",
    ],
)
def test_file_is_refused_when_somebody_else_calls_the_hook(existing: str) -> None:
    assert state(existing) == Foreign(line=1, script="/x/gpuslice-hook")
    with pytest.raises(ConfigRefused, match="line 1 already runs /x/gpuslice-hook: remove"):
        merge(existing, SCRIPT)
    assert remove(existing) == existing


def test_removal_is_refused_when_our_lines_were_changed() -> None:
    with pytest.raises(ConfigRefused, match=r"line 1 .* by hand"):
        remove(OURS.replace("action-script", "tcp-close\naction-script"))


@pytest.mark.parametrize("existing", [None, "", "tcp-close", "%what\0"])
def test_removal_leaves_the_file_alone_when_our_lines_are_not_there(existing: str | None) -> None:
    assert remove(existing) == existing


@pytest.mark.parametrize("script", ["", "hook", "/a b", "/a\nb", '/a"b', "/a#b\\", "/ä"])
def test_script_is_refused_when_criu_could_not_read_it(script: str) -> None:
    with pytest.raises(ConfigRefused, match="give an absolute path"):
        merge("", script)
