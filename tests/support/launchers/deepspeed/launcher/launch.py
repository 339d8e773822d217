"""The second launcher, which gives each rank its variables and `--local_rank`."""

import os
import subprocess
import sys


def main(count: str, program: str, *arguments: str) -> int:
    environment, started = os.environ.copy(), []
    environment |= {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": count}
    for rank in map(str, range(int(count))):
        environment |= {"RANK": rank, "LOCAL_RANK": rank}
        command = [sys.executable, "-u", program, f"--local_rank={rank}", *arguments]
        started.append(subprocess.Popen(command, env=environment))
    return max(abs(process.wait()) for process in started)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
