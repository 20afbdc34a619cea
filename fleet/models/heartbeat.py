"""When the background processes were last seen: beat's tick, a worker's, a gateway's."""

from django.db import models


class Heartbeat(models.Model):
    """One row a process kind or process, rewritten at each beat. `details` is free-form."""

    name = models.CharField(max_length=96, primary_key=True, help_text="beat, gateway:<id>, ...")
    seen_at = models.DateTimeField()
    details = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return f"{self.name} at {self.seen_at:%F %T}"
