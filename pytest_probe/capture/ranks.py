"""Which of several processes that train together this one is, as their starters say it in the environment."""

from __future__ import annotations

import os

# The variables with a process's number, and with how many there are, and how many make them train together: some
# starters set the variables of a process that is alone as well. torchrun's, which DeepSpeed, accelerate and others set
# too; Paddle's; Slurm's, whose tasks may be starters themselves.
_STARTERS = (
    ("RANK", "WORLD_SIZE", 1),
    ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", 2),
    ("SLURM_PROCID", "SLURM_NTASKS", 2),
)
# More processes than train together.
ANY_NUMBER = 1 << 62
# Which process has a number: "RANK=0 4711". Processes that it starts inherit its variables, but have other ranks.
_OWNER = "PYTEST_PROBE_CAPTURE_RANK"


def _named() -> tuple[str, int, int] | None:
    """The first variable that has a number, that number, and how many processes there are."""
    for name, count, least in _STARTERS:
        rank, ranks = os.environ.get(name, ""), os.environ.get(count, "")
        together = int(ranks) if ranks.isdecimal() else 1
        if rank.isdecimal() and together >= least:
            return name, int(rank), together
    return None


def named_rank() -> tuple[int | None, int]:
    """The number of this process among processes that train together, None where nothing says it; and how many there
    are."""
    owner, _, process = os.environ.get(_OWNER, "").partition(" ")
    found = _named()
    if found is None or (owner == f"{found[0]}={found[1]}" and process != str(os.getpid())):
        return None, 1
    return found[1:]


def keep_rank() -> None:
    """The number is this process's, and of none that it starts from now on."""
    if named_rank()[0] is not None and (found := _named()):
        os.environ[_OWNER] = f"{found[0]}={found[1]} {os.getpid()}"
