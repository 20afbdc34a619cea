"""`python -m fleet.replica`: run one replica. `--help` lists the options."""

import os
import sys

# Batches run side by side on all cores; a BLAS with threads of its own would fight them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from fleet.replica.options import parse
from fleet.replica.server import run

if __name__ == "__main__":
    sys.exit(run(parse(prog=os.environ.pop("HALCYON_PROG", "python -m fleet.replica"))))
