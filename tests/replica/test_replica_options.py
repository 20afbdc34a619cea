"""Every option and variable is checked at start, and complaints name it."""

import os
from pathlib import Path

import pytest

from fleet.replica.options import Options, add_arguments, from_arguments, parse

FLEET = ("--model", "m", "--version", "v1", "--no-register")
ALONE = ("--standalone",)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HALCYON_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("arguments", "env", "named"),
    [
        (("--version", "v1", "--no-register"), {}, "--model"),
        ((*FLEET, "--id", "a b"), {}, "--id='a b'"),
        (ALONE, {"HALCYON_SLO_MS": "fast"}, "HALCYON_SLO_MS='fast'"),
        (ALONE, {"HALCYON_PORT": "70000"}, "HALCYON_PORT='70000'"),
        (ALONE, {"HALCYON_MAX_WORKERS": "0"}, "HALCYON_MAX_WORKERS"),
        (ALONE, {"HALCYON_BATCH_SIZE": "-1"}, "HALCYON_BATCH_SIZE"),
        (ALONE, {"HALCYON_MAX_QUEUE_SIZE": "1.5"}, "HALCYON_MAX_QUEUE_SIZE"),
        (ALONE, {"HALCYON_CONTROLLER_INTERVAL": "nan"}, "HALCYON_CONTROLLER_INTERVAL"),
        (ALONE, {"HALCYON_MEMORY_THRESHOLD": "850"}, "HALCYON_MEMORY_THRESHOLD"),
        (ALONE, {"HALCYON_MODEL_INPUT_DIM": "x"}, "HALCYON_MODEL_INPUT_DIM"),
        (ALONE, {"HALCYON_FAULTS": "maybe"}, "HALCYON_FAULTS"),
        ((*ALONE, "--speed", "0"), {}, "--speed='0'"),
        ((*ALONE, "--max-batch-size", "many"), {}, "--max-batch-size='many'"),
        (FLEET[:4], {}, "HALCYON_CONTROL_URL"),
        ((*FLEET[:4], "--control-url", "http://h"), {}, "HALCYON_FLEET_TOKEN"),
        ((*FLEET[:4], "--control-url", "ftp://h"), {}, "HALCYON_CONTROL_URL='ftp://h'"),
    ],
)
def test_a_wrong_setting_stops_the_start_with_its_name(
    arguments: tuple[str, ...],
    env: dict[str, str],
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    assert named in capsys.readouterr().err.splitlines()[-1]


def test_alone_it_is_a_small_model_server() -> None:
    options = parse(ALONE)
    assert (options.port, options.slo_ms, options.max_batch_size) == (8000, 150.0, 8)
    assert (options.max_queue, options.controller_interval_s) == (500, 2.0)
    assert (options.memory_threshold, options.input_dim) == (85.0, 128)
    assert (options.runtime, options.register) == ("linear", False)


def test_in_a_fleet_it_is_one_device_behind_a_gateway() -> None:
    options = parse(FLEET)
    assert (options.port, options.max_batch_size, options.max_batch_tokens) == (9101, 32, 16_384)
    assert (options.max_concurrency, options.runtime) == (1, "simulated")


def test_a_flag_wins_over_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALCYON_PORT", "8123")
    assert parse(ALONE).port == 8123
    assert parse((*ALONE, "--port", "8456")).port == 8456


def test_a_secret_may_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv("HALCYON_FLEET_TOKEN_FILE", str(tmp_path / "token"))
    options: Options = parse((*FLEET[:4], "--control-url", "http://web:8000/"))
    assert options.token == "secret"
    assert options.control_url == "http://web:8000"
    monkeypatch.setenv("HALCYON_FLEET_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(SystemExit):
        parse((*FLEET[:4], "--control-url", "http://web:8000/"))


def test_the_django_command_has_the_same_options() -> None:
    from argparse import ArgumentParser

    from fleet.management.commands.replica import Command

    own = ArgumentParser()
    add_arguments(own)
    django = Command().create_parser("manage.py", "replica")
    ours = {word for action in own._actions for word in action.option_strings}
    assert ours <= {word for action in django._actions for word in action.option_strings}
    parsed = django.parse_args(["--model", "m", "--version", "v2", "--no-register"])
    assert from_arguments(parsed, {}).version == "v2"
