"""As `deepspeed` on one machine: a second launcher starts the ranks."""

import argparse
import os
import subprocess
import sys


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_gpus")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    launcher = [sys.executable, "-u", "-m", "deepspeed.launcher.launch", arguments.num_gpus, *arguments.program]
    sys.exit(subprocess.Popen(launcher, env=os.environ.copy()).wait())


if __name__ == "__main__":
    main()
