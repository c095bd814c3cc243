"""How much a program may use."""

import dataclasses
import math
from dataclasses import dataclass

_WALL_PER_CPU, _WALL_EXTRA_S = 3.0, 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one run. CPU time is the main one, so that the verdict does not hang on how busy the machine is.

    ``cpu_s`` counts for the program and for its tests each, ``wall_s`` (three times that and 5 s more unless given)
    for both together; time in line for a processor, and time in which everything stands still, are left out. Output
    above ``output_bytes`` is thrown away. Threads count among ``processes``. ValueError for bounds under
    which nothing could run.
    """

    cpu_s: float = 10.0
    wall_s: float | None = None
    memory_mb: int = 2048
    output_bytes: int = 1 << 20
    file_mb: int = 16
    scratch_mb: int = 64
    scratch_files: int = 100
    open_files: int = 64
    processes: int = 64

    def __post_init__(self) -> None:
        for name, lowest in (("memory_mb", 128), ("open_files", 16), ("processes", 1), ("output_bytes", 1)):
            if getattr(self, name) < lowest:
                raise ValueError(f"{name} is {getattr(self, name)}: no program runs below {lowest}, raise it")
        for name, value in (("cpu_s", self.cpu_s), ("wall_s", self.wall)):
            if not (0 < value < math.inf):
                raise ValueError(f"{name} is {value}: give a positive number of seconds")

    @property
    def wall(self) -> float:
        """The wall limit in seconds."""
        return self.cpu_s * _WALL_PER_CPU + _WALL_EXTRA_S if self.wall_s is None else self.wall_s

    def with_cpu(self, cpu_s: float) -> "Limits":
        """The same limits with another CPU limit, and the wall limit that goes with it."""
        return dataclasses.replace(self, cpu_s=cpu_s, wall_s=None)
