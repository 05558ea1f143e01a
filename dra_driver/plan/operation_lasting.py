"""Which operations have to be there after a power cut.

A durable write waits for the disk, which at that moment has the image to write, while the container
is frozen or its runtime waits for an answer. What is under way does not need one: its processes do
not live through a power cut, and the end of the plugin alone takes no file.
"""

from __future__ import annotations

from dra_driver.model.checkpoint import Kind, Operation, Outcome, Trigger


def lasts_at_once(operation: Operation) -> bool:
    """Whether it is stored for good before anything else is done.

    How an operation ended is kept for people, and restores ask for it. A controller chose the id
    of its own, and asks what became of it whatever happened to the node.
    """
    return operation.state.final or operation.trigger is Trigger.CONTROLLER


def lasts(operation: Operation) -> bool:
    """Whether it is stored for good when the runtime has ended: a restore needs its manifest.

    The archive is put together of the image after that, so until then there is nothing that could
    outlast its operation.
    """
    taken = operation.kind is Kind.CHECKPOINT and operation.outcome is Outcome.SUCCEEDED
    return taken or lasts_at_once(operation)
