"""Every way to get a configuration wrong ends as one message with the key, the value and what is allowed."""

import errno
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gnnperf.core.errors import InputError
from gnnperf.gnn.training.config import OptimConfig, TrainConfig
from gnnperf.predict.composition import entry_point
from tests.command import Command

Run = Callable[..., list[TrainConfig]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run the training entry point's task with these overrides; the configurations it was given."""
    seen: list[TrainConfig] = []

    def task(config: TrainConfig) -> None:
        seen.append(config)

    def call(*overrides: str) -> list[TrainConfig]:
        monkeypatch.setattr(sys, "argv", ["train.py", f"out={tmp_path / 'out'}", *overrides])
        entry_point("train", TrainConfig)(task)()
        return seen

    return call


def test_defaults_are_those_of_the_dataclasses(run: Run, tmp_path: Path) -> None:
    (config,) = run()
    assert isinstance(config, TrainConfig)
    assert config.optim == OptimConfig()
    assert config.out == str(tmp_path / "out")
    assert config.data.path == "datasets/cpu-gloo"


def test_overrides_groups_and_experiment(run: Run) -> None:
    (config,) = run("model=mlp", "optim.huber_delta=0.2", "experiment=demo", "seed=7")
    assert (config.model.num_layers, config.optim.huber_delta, config.seed) == (0, 0.2, 7)  # the command line wins
    assert config.data.axis == "demo"  # what the experiment sets, the command line keeps


def test_a_multirun_gives_each_job_a_folder(run: Run, tmp_path: Path) -> None:
    configs = run("seed=3,4", "--multirun")
    assert [c.seed for c in configs] == [3, 4]
    assert [c.out for c in configs] == [str(tmp_path / "out" / "0"), str(tmp_path / "out" / "1")]


def test_hardware_and_cluster_by_name_and_number(run: Run) -> None:
    (config,) = run("hardware=h200", "cluster=hgx8", "cluster.nodes=4", "hardware.clock_hz=1.2e9",
                    "cluster.inter.link=ethernet_100g", "cluster.host=grace")  # fmt: skip
    device, cluster = config.device_spec(), config.cluster_spec()
    assert device is not None and cluster is not None
    assert (device.name, device.clock_hz) == ("h200", 1.2e9)
    assert (cluster.device, cluster.nodes, cluster.inter.name) == (device, 4, "ethernet_100g")
    assert cluster.host is not None and cluster.host.name == "grace" and cluster.host_speed != 1.0


def test_without_them_nothing_is_requested_for(run: Run) -> None:
    (config,) = run()
    assert config.device_spec() is None and config.cluster_spec() is None


@pytest.fixture
def own(tmp_path: Path) -> tuple[Path, Path]:
    """A device and a cluster of the user's, which the catalog does not know."""
    shipped = Path(__file__).resolve().parents[3] / "conf"
    device, cluster = tmp_path / "device.yaml", tmp_path / "cluster.yaml"
    device.write_text((shipped / "hardware" / "t4.yaml").read_text().replace("name: t4", "name: mine"))
    cluster.write_text((shipped / "cluster" / "single.yaml").read_text().replace("a100_sxm_80gb", "mine"))
    return device, cluster


def test_ones_own_files_by_path(run: Run, own: tuple[Path, Path]) -> None:
    device, cluster = own
    (config,) = run(f"hardware={device}", f"cluster={cluster}", "hardware.num_sms=41")
    assert (config.hardware["name"], config.hardware["num_sms"]) == ("mine", 41)
    spec = config.cluster_spec()
    assert spec is not None and spec.device.name == "mine"
    assert f"hardware={device}" in sys.argv  # as the user wrote it


def test_ones_own_file_in_a_sweep(run: Run, own: tuple[Path, Path]) -> None:
    configs = run(f"hardware=t4,{own[0]}", "--multirun")
    assert [c.hardware["name"] for c in configs] == ["t4", "mine"]


@pytest.mark.parametrize(
    ("override", "result", "allowed"),
    [
        ("sed=1", "unknown key 'sed' in 'sed=1'", "did you mean 'seed'"),
        ("optim.lr=1", "unknown key 'optim.lr'", "did you mean 'optim.learning_rate'"),
        ("optm.learning_rate=1", "unknown key 'optm'", "data, model, optim"),
        ("+new=1", "unknown key 'new'", "data, model, optim"),
        ("+model.new=1", "unknown key 'model.new'", "model.hidden_channels, model.num_layers"),
        ("data={nope:1}", "unknown key 'data.nope'", "data.path"),
        ("model=transformer", "model: no choice 'transformer'", "gnn, mlp"),
        ("experiment=nope", "experiment: no choice 'nope'", "demo"),
        ("hardware=h100", "no hardware named 'h100'; did you mean h100_pcie or h100_sxm", "h100.yaml"),
        ("cluster=hgx", "no cluster named 'hgx'; did you mean hgx8", "path of a .yaml file"),
        ("hardware=nowhere/mine.yaml", "nowhere/mine.yaml: cannot be read", "check path"),
        ("model=3", "Config group override", "see conf/"),
        ("logger.kind=mlflow", "logger.kind: bad value 'mlflow'", "csv, wandb"),
        ("seed=abc", "seed: bad value 'abc'", "a whole number"),
        ("seed=null", "seed: bad value None", "a whole number"),
        ("seed=-1", "seed: bad value -1", "0 to 4294967295"),
        ("model.hidden_channels=1.5", "model.hidden_channels: bad value 1.5", "a whole number"),
        ("model.dropout=1", "model.dropout: bad value 1.0", "0 <= dropout < 1"),
        ("trainer.progress_bar=maybe", "trainer.progress_bar: bad value 'maybe'", "true or false"),
        ("seed=[1", "cannot read the override 'seed=[1'", "key=value"),
        ("out=/proc/nowhere", "/proc/nowhere", "check the path"),
    ],
)
def test_one_message_and_exit_code_2(run: Run, command: Command, override: str, result: str, allowed: str) -> None:
    message = command.refused_by(run, override)
    assert result in message
    assert allowed in message
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InputError("is empty", where="trace.json"), "error: trace.json: is empty.\n"),
        (OSError(errno.ENOSPC, "No space left on device"),  # as of a library that does not name the file
         "error: out: an output cannot be written (No space left on device)."),
    ],
)  # fmt: skip
def test_a_failure_of_the_users_inside_the_task_is_one_message_and_exit_code_2(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: Command
) -> None:
    def task(config: TrainConfig) -> None:
        raise error

    monkeypatch.setattr(sys, "argv", ["train.py", f"out={tmp_path}"])
    shown = command.refused_by(entry_point("train", TrainConfig)(task))
    assert message in shown and shown.count("\n") == 1


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def task(config: TrainConfig) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(sys, "argv", ["train.py", f"out={tmp_path}"])
    with pytest.raises(ValueError, match="a bug"):
        entry_point("train", TrainConfig)(task)()


def test_a_refused_value_leaves_no_folder(run: Run, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        run("optim.learning_rate=-1")
    assert not (tmp_path / "out").exists()
