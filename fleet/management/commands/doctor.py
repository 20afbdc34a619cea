"""`manage.py doctor`: what is amiss, what follows from it, and what to do."""

import sys
from dataclasses import asdict
from typing import Any

from rich.text import Text

from fleet.doctor import examine
from fleet.management.command import FleetCommand

SIGNS = {
    "healthy": ("ok", "green"),
    "degraded": ("!", "yellow"),
    "down": ("x", "red"),
    "unknown": ("?", "yellow"),
}


class Command(FleetCommand):
    help = "Check everything. Exits 0 where nothing is down or unknown, else 1."

    def act(self, **_: Any) -> None:
        findings = examine()
        bad = [finding for finding in findings if finding.word in {"down", "unknown"}]
        if self.as_json:
            self.print_json({"ok": not bad, "findings": [asdict(f) for f in findings]})
        else:
            console = self.console()
            width = max(len(finding.name) for finding in findings)
            for finding in findings:
                sign, colour = SIGNS[finding.word]
                line = Text(f"{sign:>2} ", style=colour)
                line.append(f"{finding.name:<{width}}  {finding.word:<8}  ", style="default")
                line.append(finding.cause, style="default")
                console.print(line, soft_wrap=True)
                if finding.word != "healthy":
                    console.print(Text(f"   so:   {finding.consequence}"), soft_wrap=True)
                    console.print(Text(f"   then: {finding.remedy}"), soft_wrap=True)
        sys.exit(1 if bad else 0)
