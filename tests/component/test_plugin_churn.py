"""Nothing grows: thousands of claims come and go through the real process."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from dra_driver.model.claim import ClaimRef
from dra_driver.sim.kubelet_endpoint import Endpoint
from dra_driver.sim.kubelet_values import KubeletError, Manners
from tests import builders
from tests.component.node_rig import TIMES, NodeRig, node_rig, simulation

CYCLES = 2000
WARM_UP = 400
WORKERS = 8
CANCELLED_EVERY = 10
MIB = 1 << 20


def test_plugin_stays_flat_over_two_thousand_claims(root: Path) -> None:
    with node_rig(root, simulation=simulation()) as rig, rig.plugin() as plugin:
        rig.wait_ready()
        details = rig.kubelet.endpoint(builders.DRIVER).details
        patient = Endpoint(details, times=TIMES, manners=Manners())
        hasty = Endpoint(details, times=TIMES, manners=Manners(cancel_after_s=0.002))
        # Two stay, one on each GPU, so that no MPS daemon has to be started for each claim.
        *claims, first, second = _claims(rig, WORKERS * 2 + 2)
        patient.prepare((first, second))
        slices, writes = rig.slices(), _slice_writes(rig)
        _churn(claims, patient, hasty, cycles=WARM_UP)
        threads, descriptors, resident = plugin.usage()
        _churn(claims, patient, hasty, cycles=CYCLES)
        after = plugin.usage()
        patient.unprepare((first, second))
        patient.close()
        hasty.close()
        assert after[0] <= threads + 2
        # Each worker may have come to a connection of its own to the API server.
        assert after[1] <= descriptors + WORKERS
        assert after[2] <= resident + 6 * MIB
        assert rig.specs() == []
        assert list((rig.state / "claims").iterdir()) == []
        assert (rig.slices(), _slice_writes(rig)) == (slices, writes)
        assert "Traceback" not in plugin.log


def _claims(rig: NodeRig, count: int) -> tuple[ClaimRef, ...]:
    """Claims that all fit on the node together: two GPUs of 100 %."""
    gpus = rig.gpus()
    return tuple(
        rig.allocate(
            number,
            [builders.share_result(gpus[number % 2], share=number + 1, compute=5, memory="1Gi")],
        ).ref
        for number in range(count)
    )


def _churn(claims: Sequence[ClaimRef], patient: Endpoint, hasty: Endpoint, *, cycles: int) -> None:
    def cycle(number: int) -> None:
        ref = claims[number % len(claims)]
        if number % CANCELLED_EVERY == 0:
            with suppress(KubeletError):
                hasty.prepare((ref,))
        prepared = patient.prepare((ref,))[ref.uid]
        assert not isinstance(prepared, str), prepared
        assert patient.unprepare((ref,))[ref.uid] == ""

    # Each worker keeps to its own claims, as the kubelet does: one call of a claim at a time.
    def work(worker: int) -> None:
        for number in range(worker, cycles, len(claims)):
            cycle(number)

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, range(len(claims))))


def _slice_writes(rig: NodeRig) -> dict[tuple[str, str], int]:
    return {what: count for what, count in rig.api.writes().items() if what[1] == "resourceslices"}
