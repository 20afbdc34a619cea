"""The Django project: settings, addresses, and the services that it brings along.

The Celery application is imported here so that `shared_task` finds it in every process.
"""

from halcyon_site.celery import app as celery_app

__all__ = ["celery_app"]
