"""Which of several processes that train together this one is, as their starters say it in the environment."""

from __future__ import annotations

import os

from msgspec import Struct


class _Starter(Struct, frozen=True):
    """The variables with a process's number, and with how many there are. least: how many make them train together;
    some starters set the variables of a process that is alone as well."""

    rank: str
    ranks: str
    least: int = 2

    def numbers(self) -> tuple[int | None, int]:
        rank, ranks = os.environ.get(self.rank, ""), os.environ.get(self.ranks, "")
        together = int(ranks) if ranks.isdecimal() else 1
        return (int(rank), together) if rank.isdecimal() and together >= self.least else (None, 1)


# torchrun's, which DeepSpeed, accelerate and others set too; Paddle's; Slurm's, whose tasks may be starters themselves.
_STARTERS = (
    _Starter("RANK", "WORLD_SIZE", least=1),
    _Starter("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"),
    _Starter("SLURM_PROCID", "SLURM_NTASKS"),
)
# More processes than train together.
ANY_NUMBER = 1 << 62
# Which process has a number: "RANK=0 4711". Those that it starts inherit its variables, and are others.
_OWNER = "PYTEST_PROBE_CAPTURE_RANK"


def named_rank() -> tuple[int | None, int]:
    """The number of this process among processes that train together, None where nothing says it; and how many there
    are."""
    owner, _, process = os.environ.get(_OWNER, "").partition(" ")
    for starter in _STARTERS:
        rank, ranks = starter.numbers()
        if rank is not None:
            inherited = owner == f"{starter.rank}={rank}" and process != str(os.getpid())
            return (None, 1) if inherited else (rank, ranks)
    return None, 1


def keep_rank() -> None:
    """The number is this process's, and of none that it starts from now on."""
    if named_rank()[0] is not None:
        starter, rank = next((each, each.numbers()[0]) for each in _STARTERS if each.numbers()[0] is not None)
        os.environ[_OWNER] = f"{starter.rank}={rank} {os.getpid()}"
