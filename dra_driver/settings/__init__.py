"""All settings: flags over environment variables over the YAML file of --config over defaults.

Each is declared once, as a field of `Settings`; flags, variables, file keys, help texts and the
table of the README follow from that.
"""

from dra_driver.settings.model import PublishMode, Settings, SharingMode
from dra_driver.settings.sources import DOWNWARD_API, Check, flag_of, load, variable_of
from dra_driver.settings.values import Endpoint

__all__ = [
    "DOWNWARD_API",
    "Check",
    "Endpoint",
    "PublishMode",
    "Settings",
    "SharingMode",
    "flag_of",
    "load",
    "variable_of",
]
