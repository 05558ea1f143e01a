from tests.command_line import run, simulation

__all__ = ["run", "simulation"]
