"""A fleet in a file: compared exactly, applied whole, refused by name where it is wrong."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from engine.errors import InvalidInput
from fleet import fleet_file, services
from fleet.fleet_file.keys import demo_key
from fleet.models import ApiKey, Replica, Tenant, TrafficSplit
from fleet.secret import digest_of

DEMO = Path(__file__).resolve().parents[2] / "fleet" / "demo.yaml"
FLEET = """
models:
  llama:
    versions: [v1, v2]
    split: {baseline: v1, canary: v2, canaryPercent: 5}
replicas:
  - {id: local, model: llama, version: v1}
  - {id: remote, model: llama, version: v2, address: "http://10.0.0.9:8000", protocol: openai}
tenants:
  acme: {requestsPerMinute: 60, keys: [main]}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    return path


def run(*arguments: Any, **options: Any) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out, **options)
    return out.getvalue()


@pytest.mark.django_db
def test_what_is_applied_is_not_different_any_more(tmp_path: Path) -> None:
    fleet = fleet_file.read(write(tmp_path, FLEET))
    fleet_file.apply(fleet_file.differences(fleet), actor="test")
    assert fleet_file.differences(fleet) == []
    assert TrafficSplit.objects.get().canary_percent == 5
    assert Replica.objects.get().address == "http://10.0.0.9:8000"
    assert Replica.objects.get().heartbeat_at is None
    assert ApiKey.objects.get().digest == digest_of(demo_key("acme", "main").text)


@pytest.mark.django_db
def test_a_dry_run_says_what_would_change_and_changes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, FLEET)
    run("replicas", "apply", path)
    changed = FLEET.replace("canaryPercent: 5", "canaryPercent: 25").replace("60", "90")
    path.write_text(changed)
    told = run("replicas", "apply", path, "--dry-run")
    assert "change split llama (canary_percent: 5.0 -> 25.0)" in told
    assert "requests_per_minute: 60 -> 90" in told
    assert TrafficSplit.objects.get().canary_percent == 5
    document = json.loads(run("replicas", "apply", path, "--dry-run", "--json"))
    assert document["applied"] is False
    assert {step["kind"] for step in document["steps"]} == {"split", "tenant"}
    assert json.loads(run("replicas", "apply", path, "--json"))["applied"] is True
    assert TrafficSplit.objects.get().canary_percent == 25
    assert "as the file says" in run("replicas", "apply", path)


@pytest.mark.django_db
def test_an_openai_server_in_a_file_gets_what_suits_it_and_keeps_what_it_tells(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, FLEET)
    assert "simulated" not in run("replicas", "apply", path, "--dry-run")
    run("replicas", "apply", path)
    replica = Replica.objects.get(pk="remote")
    assert (replica.runtime, replica.max_concurrency) == ("", 256)
    Replica.objects.update(gpu_memory_ratio=0.5, loaded_models=["meta/llama"])
    assert "as the file says" in run("replicas", "apply", path)
    said = ", maxConcurrency: 64, loadedModels: [llama-8b], gpuMemoryRatio: 0.71}"
    path.write_text(FLEET.replace("protocol: openai}", "protocol: openai" + said))
    told = run("replicas", "apply", path, "--dry-run")
    for change in (
        "max_concurrency: 256 -> 64",
        "loaded_models: ['meta/llama'] -> ['llama-8b']",
        "gpu_memory_ratio: 0.5 -> 0.7",
    ):
        assert change in told
    run("replicas", "apply", path)
    replica.refresh_from_db()
    assert (replica.max_concurrency, replica.gpu_memory_ratio) == (64, 0.7)
    assert replica.loaded_models == ["llama-8b"]
    assert "as the file says" in run("replicas", "apply", path)


@pytest.mark.django_db
@pytest.mark.parametrize(("protocol", "at_once"), [("openai", 256), ("batch", 1)])
def test_how_much_runs_at_once_if_nobody_says_depends_on_the_protocol(
    protocol: str, at_once: int
) -> None:
    words = ("--model", "llama", "--model-version", "v1", "--address", "http://10.0.0.9:8000")
    run("replicas", "register", "vllm", *words, "--protocol", protocol)
    assert Replica.objects.get().max_concurrency == at_once
    run("replicas", "register", "vllm", *words, "--protocol", protocol, "--max-concurrency", "8")
    assert Replica.objects.get().max_concurrency == 8


@pytest.mark.django_db
def test_pruning_removes_what_the_file_does_not_name_and_nothing_of_other_models(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, FLEET)
    run("replicas", "apply", path)
    for replica_id, model in (("stray", "llama"), ("other", "gpt")):
        services.register_replica(
            services.Registration(
                replica_id=replica_id, model=model, version="v1", address="http://127.0.0.1:1"
            ),
            actor="test",
        )
    assert "as the file says" in run("replicas", "apply", path)
    assert "remove replica stray" in run("replicas", "apply", path, "--prune")
    assert set(Replica.objects.values_list("pk", flat=True)) == {"remote", "other"}


@pytest.mark.django_db
def test_adding_what_is_missing_leaves_an_operators_decisions_alone(tmp_path: Path) -> None:
    fleet = fleet_file.read(write(tmp_path, FLEET))
    fleet_file.apply(fleet_file.differences(fleet), actor="test")
    services.set_split("llama", baseline="v2", actor="ada")
    services.update_tenant(Tenant.objects.get(), requests_per_minute=5, actor="ada")
    services.revoke_key(ApiKey.objects.get(), actor="ada")
    assert fleet_file.differences(fleet, only_missing=True) == []
    assert len(fleet_file.differences(fleet)) == 2


@pytest.mark.django_db
def test_a_step_that_is_refused_undoes_the_steps_before_it(tmp_path: Path) -> None:
    wrong = FLEET.replace("http://10.0.0.9:8000", "http://169.254.169.254")
    with pytest.raises(CommandError, match=r"169\.254\.169\.254"):
        run("replicas", "apply", write(tmp_path, wrong))
    assert not Tenant.objects.exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("canaryPercent", "canaryPercents", "canaryPercents"),
        ("canary: v2", "canary: v9", "'v9'"),
        ("version: v1}", "version: v7}", "'v7'"),
        ("{id: local", "{id: remote", "twice"),
        ("{id: local", "{runtime: quantum, id: local", "'quantum'"),
        ("protocol: openai", "protocol: grpc", "grpc"),
        ("protocol: openai", "protocol: openai, maxConcurrency: 0", "maxConcurrency"),
        ("requestsPerMinute: 60", "requestsPerMinute: many", "requestsPerMinute"),
        ("models:", "models: [", "not YAML"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = write(tmp_path, FLEET.replace(old, new, 1))
    with pytest.raises(InvalidInput) as refused:
        fleet_file.read(path)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)


def test_the_demonstration_is_a_valid_file_whose_canary_gets_its_share() -> None:
    demo = fleet_file.read(DEMO)
    llama = demo.models["llama-3-8b"]
    speeds = [r.speed for r in demo.replicas if r.model == "llama-3-8b"]
    assert speeds == [1.0, 0.6, 1.4]
    assert llama.split is not None
    assert abs(llama.split.canary_percent - 100 * 1.4 / sum(speeds)) < 5
    assert {r.runtime for r in demo.replicas if r.model == "minilm"} == {"embedding"}
