"""Every config file of the repository parses as what it is."""

from pathlib import Path

import pytest
import yaml

from cospec.cli.demo import CONFIG, DemoConfig
from cospec.config import load_config, to_yaml
from cospec.pair import PairSpec
from cospec.training.config import DrafterHeadConfig, GrpoConfig, JudgeConfig, SftConfig

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name)
def test_run_configs_parse_and_read_back(path: Path, tmp_path: Path) -> None:
    kinds = {"head": DrafterHeadConfig, "judge": JudgeConfig, "sft": SftConfig}
    kind = next((kind for word, kind in kinds.items() if word in path.stem), GrpoConfig)
    config = load_config(kind, path, [])
    (tmp_path / "again.yaml").write_text(to_yaml(config))
    assert load_config(kind, tmp_path / "again.yaml", []) == config


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "pairs").glob("*.yaml")), ids=lambda path: path.name)
def test_pair_files_parse(path: Path) -> None:
    assert load_config(PairSpec, path, []).draft.path


def test_the_demo_config_parses_with_its_stages() -> None:
    demo = load_config(DemoConfig, CONFIG, [])
    load_config(SftConfig, None, ["rollouts=r", "labels=l", *demo.sft])
    config = load_config(GrpoConfig, None, ["prompts=p", *demo.grpo])
    assert config.accumulation(1) >= 1


@pytest.mark.parametrize("path", sorted((ROOT / "launch").glob("*.yaml")), ids=lambda path: path.name)
def test_launch_files_are_yaml_with_a_process_count(path: Path) -> None:
    assert yaml.safe_load(path.read_text())["num_processes"] >= 1
