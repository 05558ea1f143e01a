"""From settings to the options of what they configure."""

from __future__ import annotations

from dra_driver.errors import SettingsError
from dra_driver.plan.layouts import parse_layouts
from dra_driver.plan.prepare import PrepareOptions
from dra_driver.plan.slices import PublishMode, PublishOptions
from dra_driver.settings import Settings, SharingMode


def publish_options(settings: Settings) -> PublishOptions:
    """Raises SettingsError where the static layout is malformed."""
    try:
        layouts = parse_layouts(settings.static_layout)
    except ValueError as error:
        raise SettingsError(f"--static-layout is {settings.static_layout!r}: {error}") from error
    return PublishOptions(
        driver=settings.driver_name,
        node=settings.node_name,
        mode=PublishMode(settings.publish_mode.value),
        layouts=layouts,
    )


def prepare_options(settings: Settings, *, node: str, boot_id: str) -> PrepareOptions:
    """As if all that is wanted of the checkpoint hook could be had."""
    return PrepareOptions(
        driver=settings.driver_name,
        node=node,
        boot_id=boot_id,
        allow_burst=settings.allow_burst,
        mps_single_uid=settings.mps_single_uid,
        run_dir=str(settings.run_dir),
        mps_folders=settings.sharing is SharingMode.MPS,
        mark_claims=True,
        checkpoints=settings.checkpoint_hook,
        hook=str(settings.hook_path) if settings.checkpoint_hook else None,
    )
