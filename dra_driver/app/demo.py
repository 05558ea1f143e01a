"""The demo: the whole driver at work on simulated GPUs, in a few seconds, as any user.

python -m dra_driver.app.demo [--keep] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from time import monotonic

from dra_driver import log
from dra_driver.app.demo_cluster import DemoCluster
from dra_driver.app.demo_ending import Ending
from dra_driver.app.demo_interruption import Interruption
from dra_driver.app.demo_keep import keep
from dra_driver.app.demo_node import PROFILE, DemoNode, demo_node
from dra_driver.app.demo_story import Story
from dra_driver.app.demo_view import Plain, Rich, Silent, View
from dra_driver.errors import GpusliceError
from dra_driver.plan.allocate_values import SchedulerRules
from dra_driver.sim.allocator import Allocator
from dra_driver.sim.api_server import StatusError

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130

_INTRODUCTION = (
    "A node that does not exist: its GPUs are simulated, and an API server, a scheduler and a"
    " kubelet run inside this process. The gpuslice plugin is the real one, and talks to them"
    " over real sockets. It takes some seconds, needs no rights, and leaves nothing behind."
)


def main(arguments: Sequence[str]) -> int:
    """Run the demo, and give the exit status: 1 where a step did not do what it should."""
    options = _parser().parse_args(arguments)
    log.configure(log.LogLevel.ERROR, log.LogFormat.CONSOLE)
    interruption = Interruption()
    interruption.listen()
    try:
        return _run(_view(options), interruption, options)
    except KeyboardInterrupt:
        sys.stderr.write("demo: interrupted; everything was cleaned up\n")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_FAILED
    except (GpusliceError, StatusError) as error:
        sys.stderr.write(f"demo: {error}\n")
        return EXIT_FAILED


def _run(view: View, interruption: Interruption, options: argparse.Namespace) -> int:
    start_s = monotonic()
    view.text(_INTRODUCTION)
    with demo_node(interruption) as node:
        result = _tell(node, view, options)
    if node.root.exists():
        raise GpusliceError(f"{node.root} could not be removed: delete it by hand")
    took_s = monotonic() - start_s
    view.text(f"{node.root} is removed. That was all, in {took_s:.1f} s.")
    if not options.keep:
        view.text("With --keep it stays, to be looked at and played with.")
    if options.json:
        sys.stdout.write(f"{json.dumps({**result, 'seconds': round(took_s, 3)}, indent=2)}\n")
    return 0


def _tell(node: DemoNode, view: View, options: argparse.Namespace) -> dict[str, object]:
    allocator = Allocator(SchedulerRules(minor=PROFILE.minor))
    cluster = DemoCluster(node.api, node.kubelet, allocator)
    story, ending = Story(node, cluster, view), Ending(node, cluster, view)
    chapters = (story.start, story.show_slices, story.run_jobs, story.run_tenants, story.refuse)
    for chapter in chapters:
        chapter()
        node.interruption.check()
    tenant = story.result["slice"]["pod"]
    ending.show_claim(tenant)
    ending.crash(tenant)
    node.interruption.check()
    if options.keep:
        keep(node, cluster, view, pod=tenant)
    ending.clean_up()
    return {**story.result, **ending.result}


def _view(options: argparse.Namespace) -> View:
    if options.json:
        return Silent()
    return Rich() if sys.stdout.isatty() else Plain()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hack/demo",
        description="The driver at work on simulated GPUs: needs no GPU, no cluster and no root.",
    )
    parser.add_argument(
        "--keep", action="store_true", help="stay when all runs, to play with it, until Ctrl-C"
    )
    parser.add_argument("--json", action="store_true", help="print what happened as JSON only")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
