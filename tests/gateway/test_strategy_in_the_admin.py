"""The strategy of a model, changed in the admin, is what the next request is routed by."""

import os
import subprocess
import sys
from pathlib import Path

from tests.gateway.conftest import Stack
from tests.gateway.gateway_process import until

# The admin's own form, in a process of its own, on the database that the gateway follows.
_CHANGE = """
import os, django
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "halcyon_site.settings")
django.setup()
from django.test.utils import setup_test_environment
setup_test_environment()  # so that answers keep their forms
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from fleet.models import Model
client = Client(headers={"host": "localhost"})
client.force_login(User.objects.create_superuser("boss", password="correct horse"))
page = reverse("admin:fleet_model_change", args=[Model.objects.get(name="m").pk])
response = client.get(page)
assert response.status_code == 200, response.status_code
form = response.context["adminform"].form
data = {name: form.get_initial_for_field(field, name) for name, field in form.fields.items()}
data = {name: value for name, value in data.items() if value is not None}
for inline in response.context["inline_admin_formsets"]:
    formset = inline.formset
    counts = formset.management_form.initial
    data |= {f"{formset.prefix}-{key}": value for key, value in counts.items()}
    for each in formset.initial_forms:
        data |= {
            each.add_prefix(name): each.get_initial_for_field(field, name)
            for name, field in each.fields.items()
            if each.get_initial_for_field(field, name) is not None
        }
data["strategy"] = "round_robin"
answer = client.post(page, data)
assert answer.status_code == 302, answer.content[-3000:]
"""


async def test_a_strategy_changed_in_the_admin_routes_the_next_requests(stack: Stack) -> None:
    stack.rows.model()
    for _ in range(2):
        await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant())

    async def strategy() -> str:
        (model,) = (await gateway.state())["models"]
        return str(model["strategy"])

    assert await strategy() == "peak_ewma"
    subprocess.run(
        [sys.executable, "-c", _CHANGE],
        env={**os.environ, **stack.environment},
        cwd=Path(__file__).resolve().parents[2],
        check=True,
        timeout=120,
    )

    async def changed() -> bool:
        return await strategy() == "round_robin"

    await until(changed, 10.0, "the new strategy at the gateway")
    before = [replica.seen.items for replica in stack.replicas]
    for _ in range(8):
        assert (await gateway.infer()).status == 200
    served = [replica.seen.items - n for replica, n in zip(stack.replicas, before, strict=True)]
    assert served == [4, 4]
