"""The Celery application. Its schedule is static and lives in `settings.CELERY_BEAT_SCHEDULE`."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "halcyon_site.settings")

app = Celery("halcyon")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
