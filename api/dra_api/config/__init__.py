"""Opaque configuration of devices: kinds of `config.gpuslice.io/v1alpha1`.

Users write these objects into `opaque.parameters` of a ResourceClaim or a DeviceClass. The group
stays the same when the driver is renamed.
"""

from __future__ import annotations

from dra_api.config.decode import API_VERSION, KINDS, ConfigError, decode

__all__ = ["API_VERSION", "KINDS", "ConfigError", "decode"]
