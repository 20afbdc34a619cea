"""What was recorded: to look at, never to edit."""

from django.contrib import admin

from fleet.admin.announced import ReadOnlyAdmin
from fleet.models import Heartbeat, UsageMinute, WindowStat


@admin.register(WindowStat)
class WindowAdmin(ReadOnlyAdmin):
    list_display = (
        "window_start",
        "resolution_s",
        "gateway",
        "model",
        "version",
        "arm",
        "served",
        "faults",
        "sheds",
        "misses",
    )
    list_filter = ("model", "arm", "resolution_s")
    search_fields = ("model", "version", "gateway")
    date_hierarchy = "window_start"
    ordering = ("-window_start",)
    show_full_result_count = False
    list_per_page = 50


@admin.register(UsageMinute)
class UsageAdmin(ReadOnlyAdmin):
    list_display = (
        "minute",
        "tenant",
        "model",
        "gateway",
        "requests",
        "served",
        "prompt_tokens",
        "completion_tokens",
    )
    list_filter = ("model",)
    search_fields = ("tenant", "model")
    date_hierarchy = "minute"
    ordering = ("-minute",)
    show_full_result_count = False
    list_per_page = 50


@admin.register(Heartbeat)
class HeartbeatAdmin(ReadOnlyAdmin):
    list_display = ("name", "seen_at", "details")
    search_fields = ("name",)
