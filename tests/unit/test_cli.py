"""The command line: ships a whole pair or says what is missing."""

import pytest

from blockpilot import cli


@pytest.fixture
def trained(tmp_path):
    source = tmp_path / "train_pocket"
    for kind, names in cli.SHIPPED.items():
        for name in names:
            (source / kind).mkdir(parents=True, exist_ok=True)
            (source / kind / name).write_text(f"{kind}/{name}")
    (source / "cards").mkdir()
    for name in ("target.md", "draft.md", "quality.json"):
        (source / "cards" / name).write_text(name)
    return source


def ship(source, destination) -> int:
    return cli.main(["ship-pocket", f"--source={source}", f"--destination={destination}"])


def test_ships_files_and_cards(trained, tmp_path, capsys):
    assert ship(trained, tmp_path / "pocket") == 0
    assert (tmp_path / "pocket/draft/model.safetensors").read_text() == "draft/model.safetensors"
    assert (tmp_path / "pocket/target/README.md").read_text() == "target.md"
    assert (tmp_path / "pocket/quality.json").exists()
    assert "11 files" in capsys.readouterr().out


def test_names_what_is_missing_and_copies_nothing(trained, tmp_path, capsys):
    (trained / "draft/model.safetensors").unlink()
    assert ship(trained, tmp_path / "pocket") == 1
    assert "draft/model.safetensors missing; run: make train-pocket" in capsys.readouterr().err
    assert not (tmp_path / "pocket").exists()


def test_refuses_a_pair_that_is_too_large(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cli, "MAX_SHIPPED_MB", 1e-6)
    assert ship(trained, tmp_path / "pocket") == 1
    assert "MB; allowed" in capsys.readouterr().err


def test_help(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    assert stop.value.code == 0
    assert "ship-pocket" in capsys.readouterr().out


def test_public_names():
    import blockpilot

    assert all(getattr(blockpilot, name) for name in blockpilot.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        blockpilot.nothing  # noqa: B018
