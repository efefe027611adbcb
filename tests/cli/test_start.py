"""How the command line starts: fast, without a training stack, and with few words on errors."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from speed import SECOND, effort

HEAVY = ("torch", "torchvision", "numpy", "nvidia.dali", "PIL", "sklearn", "scipy", "jinja2",
         "vl_convert")  # fmt: skip

LIGHT_COMMANDS = (
    ["--help"],
    ["--version"],
    ["validate", "--help"],
    ["report", "--help"],
    ["run", "--help"],
    ["run", "--dry-run"],
    ["rules"],
    ["rules", "LED001"],
    ["presets"],
    ["presets", "digits"],
    ["estimate", "--preset", "resnet50-64k", "--nodes", "256"],
    ["estimate", "--validation"],
    ["data", "--help"],
)


def fourmin(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fourmin", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("arguments", LIGHT_COMMANDS, ids=" ".join)
def test_nothing_heavy_is_imported(arguments: list[str], tmp_path: Path) -> None:
    program = (
        "import sys\nfrom fourmin.cli.main import app\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "try: app()\nexcept SystemExit as end: assert not end.code, end.code\n"
        f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.stdout.rstrip().endswith("HEAVY []"), done.stdout[-300:] + done.stderr


def test_validate_and_report_of_a_campaign_import_nothing_heavy(tmp_path: Path) -> None:
    from campaign_factory import make_campaign

    folder = make_campaign(tmp_path)
    for command in ("validate", "report"):
        program = (
            "import sys\nfrom fourmin.cli.main import app\n"
            f"sys.argv[1:] = [{command!r}, {str(folder)!r}]\n"
            "try: app()\nexcept SystemExit as end: assert not end.code, end.code\n"
            f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules])"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False
        )
        assert done.stdout.rstrip().endswith("HEAVY []"), done.stdout[-300:] + done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["validate", "--help"]], ids=" ".join)
def test_help_takes_less_than_half_a_second(arguments: list[str]) -> None:
    assert fourmin(*arguments).returncode == 0
    assert effort(lambda: fourmin(*arguments), SECOND / 2) <= SECOND / 2


def test_no_sub_module_below_training_is_imported_by_others() -> None:
    """Only `training` imports torch, and only its own worker, `bench` and `audit` import it."""
    import ast

    package = Path(__file__).resolve().parents[2] / "fourmin"
    allowed = {"training", "bench", "campaign/audit.py"}
    for path in package.rglob("*.py"):
        inside = path.relative_to(package)
        if {inside.parts[0], str(inside)} & allowed:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] not in ("torch", "torchvision"), path
                assert not name.startswith("fourmin.training"), path


def test_an_unknown_command_or_option_is_wrong_usage() -> None:
    assert fourmin("nonsense").returncode == 2
    assert fourmin("run", "--nonsense").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["presets", "nosuch"], "no preset 'nosuch'"),
        (["rules", "XYZ999"], "XYZ999"),
        (["validate", "nowhere"], "no nowhere"),
        (["report", "nowhere"], "no nowhere"),
        (["report"], "nothing to report on"),
        (["report", "--format", "html5", "."], "no report format 'html5'"),
    ],
)
def test_errors_are_short_and_exit_with_2(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = fourmin(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) < 24


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m fourmin rules | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    # As every Unix filter: done before it noticed, or ended by SIGPIPE.
    assert done.returncode in (0, 128 + signal.SIGPIPE), done.stderr
    assert done.stderr == ""


def test_presets_are_described(tmp_path: Path) -> None:
    done = fourmin("presets", "digits")
    assert "global_batch_size = 64" in done.stdout
    import json

    assert json.loads(fourmin("presets", "digits", "--json").stdout)["model"] == "resnet8"
    assert "digits" in json.loads(fourmin("presets", "--json").stdout)
