"""What one recorded run is: a program, its ranks, what they talk over, and at most one known disturbance."""

from dataclasses import dataclass

from research.recording.network import LOOPBACK, Link
from research.recording.workloads.workload import Place, Workload


@dataclass(frozen=True)
class Sleep:
    """One rank sleeps once per step."""

    rank: int  # which
    place: Place  # where in the step
    sleep_us: float  # how long

    @property
    def name(self) -> str:
        """Short: sleep-r1-backward-5ms."""
        return f"sleep-r{self.rank}-{self.place}-{self.sleep_us / 1e3:g}ms"

    @property
    def edit(self) -> dict[str, object]:
        """What it does to the graph of the undisturbed run."""
        return {"rank": self.rank, "place": str(self.place), "sleep_us": self.sleep_us}


@dataclass(frozen=True)
class RunSpec:
    """One run of a plan; recorded several times."""

    workload: Workload  # the program and its sizes
    world_size: int = 2  # number of ranks
    link: Link = LOOPBACK  # what they talk over
    sleep: Sleep | None = None  # the disturbance; None none

    @property
    def name(self) -> str:
        """Unique within a plan, and the name of the run's folder: dlrm_t8_r100k_d32_b256_x2_lo."""
        parts = [self.workload.name, f"x{self.world_size}", self.link.name]
        return "_".join(parts + ([self.sleep.name] if self.sleep else []))
