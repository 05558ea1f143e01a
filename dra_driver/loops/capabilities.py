"""What the API server keeps, asked again whenever it may have changed."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock

from dra_driver.errors import AdapterError, Forbidden
from dra_driver.model.capability import ApiCapability
from dra_driver.plan.probe import Feature, capability_from, probe_body
from dra_driver.ports import ApiProbe, Clock, Json

_TAINTS_FIELD = "devices.taints"


class Capabilities:
    """Probes once per server version, and again after doubts.

    Args:
        probe: asks the server.
        driver, node: of the slices that are tried.
        clock: of the distrust.
        distrust_s: how long a feature stays off after the server dropped its fields although it
            had kept them in a dry run: one of several servers is older than the others.
    """

    def __init__(
        self, probe: ApiProbe, *, driver: str, node: str, clock: Clock, distrust_s: float
    ) -> None:
        self._probe = probe
        self._driver = driver
        self._node = node
        self._clock = clock
        self._distrust_s = distrust_s
        self._lock = Lock()
        self._doubted = False
        self._known: ApiCapability | None = None
        self._distrusted: dict[Feature, float] = {}

    def current(self) -> ApiCapability:
        """What the server keeps now.

        Raises:
            AdapterError: it could not be asked.
        """
        version = self._probe.server_version()
        with self._lock:
            known = None if self._doubted else self._known
            self._doubted = False
        if known is None or known.git_version != version.get("gitVersion"):
            # Until the probe has succeeded the doubt stays: nothing is known of this server.
            self._known = None
            known = capability_from(version, {each: self._ask(each) for each in Feature})
            self._known = known
        now_s = self._clock.monotonic_s()
        off = {each for each, until_s in self._distrusted.items() if until_s > now_s}
        return replace(
            known,
            consumable=known.consumable and Feature.CONSUMABLE not in off,
            taints=known.taints and Feature.TAINTS not in off,
        )

    def doubt(self) -> None:
        """Probe again next time: the server may have been restarted with other feature gates."""
        with self._lock:
            self._doubted = True

    def distrust(self, dropped: tuple[str, ...]) -> None:
        """Do without the features whose fields the server dropped; see `dropped_fields`."""
        taints = [field for field in dropped if field.startswith(_TAINTS_FIELD)]
        until_s = self._clock.monotonic_s() + self._distrust_s
        if taints:
            self._distrusted[Feature.TAINTS] = until_s
        if len(taints) < len(dropped):
            self._distrusted[Feature.CONSUMABLE] = until_s
        self.doubt()

    def _ask(self, feature: Feature) -> Json | None:
        body = probe_body(feature, driver=self._driver, node=self._node)
        try:
            return self._probe.dry_run_slice(body)
        except Forbidden:
            # A missing right says nothing about what the server keeps.
            raise
        except AdapterError as error:
            if error.permanent:
                return None
            raise
