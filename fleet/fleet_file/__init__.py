"""A fleet in a file: what exists, in the control API's own words, to compare and to apply.

    fleet = read(Path("fleet/demo.yaml"))
    steps = differences(fleet)            # pure reading: what applying would do
    apply(steps, actor="ada")             # all of it, in one transaction

`manage.py replicas apply FILE` makes the running fleet equal to the file, for everything
the file names; what it does not name is left alone, unless `--prune`. `manage.py up` only
adds what is missing, so that an operator's later decisions survive a restart.
"""

from fleet.fleet_file.apply import apply
from fleet.fleet_file.compare import Step, differences
from fleet.fleet_file.words import FleetFile, ReplicaWords, read

__all__ = ["FleetFile", "ReplicaWords", "Step", "apply", "differences", "read"]
