"""As `accelerate launch` of several processes: torch's launcher runs in this process."""

import argparse
import os

from torch.distributed import run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--multi_gpu", action="store_true")
    parser.add_argument("--num_processes")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    os.environ["ACCELERATE_MIXED_PRECISION"] = "no"
    run.main(["--nproc_per_node", arguments.num_processes, *arguments.program])


if __name__ == "__main__":
    main()
