"""The API server, as this node's driver meets it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dra_driver.adapters.kube import check_configuration, connect
from dra_driver.errors import Forbidden, NotFound, SettingsError
from dra_driver.loops.capabilities import Capabilities
from dra_driver.model.doctor import Finding, ok, problem, warning
from dra_driver.plan.doctor import judge_api
from dra_driver.ports import ApiProbe, Clock
from dra_driver.settings import Settings


def api_server(settings: Settings, clock: Clock) -> Callable[[], Iterator[Finding]]:
    """The check of the API server that the settings lead to, or of why there is none."""
    subject = "api server"
    if settings.kubeconfig is None:
        try:
            check_configuration(None)
        except SettingsError:
            mend = "give --kubeconfig, or run the doctor in the driver's pod"
            return lambda: iter((warning(subject, "not asked: no way to it is given", mend),))
    try:
        api = connect(
            kubeconfig=settings.kubeconfig,
            driver=settings.driver_name,
            node=settings.node_name,
            clock=clock,
        )
    except SettingsError as error:
        text = str(error)
        return lambda: iter((problem(subject, text),))

    def check() -> Iterator[Finding]:
        try:
            yield from judge_server(api.probe, settings=settings, clock=clock)
        finally:
            api.close()

    return check


def judge_server(probe: ApiProbe, *, settings: Settings, clock: Clock) -> Iterator[Finding]:
    """What the server keeps, and whether it knows this node."""
    if not settings.node_name:
        mend = "give --node-name"
        yield warning("node", "not looked for, and gates not probed: its name is not known", mend)
        return
    capabilities = Capabilities(
        probe, driver=settings.driver_name, node=settings.node_name, clock=clock, distrust_s=0.0
    )
    try:
        yield from judge_api(capabilities.current())
    except Forbidden as error:
        yield warning("api server", f"what it keeps cannot be probed: {error}")
    try:
        yield ok("node", f"{settings.node_name}, UID {probe.node_uid()}")
    except NotFound as error:
        yield problem("node", str(error), "give --node-name the name of this node's Node object")
