"""Published numbers: found by table, filter and column, printed as asked, or refused by name."""

from __future__ import annotations

import json

import pytest

from blockpilot import cli
from blockpilot.errors import BlockPilotError
from blockpilot.published import Published
from blockpilot.readme import README_RUN, claim, refresh_readme, render_blocks

MAIN = """\
decode,policy,n,speedup,speedup_low,speedup_high,gain,gain_low,gain_high,equal_text,empty
T0,fixed:8,1410,2.4002,2.247,2.5432,-1.2267,-1.3526,-1.1,36/36,
T0,oracle,1410,1.071,1.044,1.1049,0.148,0.109,0.191,35/36,
T1,oracle,1410,2,1,3,-0.0004,0,0,36/36,
"""
DATASETS = """\
dataset,split,prompts
arithmetic,train,1000
arithmetic,test,20
code,test,3
human_eval,test,80
"""
AGREEMENT = "decode,equal_pairs,num_pairs\nT0,54,54\nT1,1146,1200\n"
BENCH = """\
system,setting,median,unit
"best fixed, b=8","T=0, texts equal: 960 of 960",0.0033,s
"best fixed, b=8","T=0, rounds",0.5,s
"""
MANIFEST = {
    "config": {"decode": {"max_new_tokens": 1920}, "prompts": {"out_of_domain": ["human_eval"]}},
    "machine": {"processor": "Abacus"},
    "rule_s": {"decode": 30.0, "sweep": 60.0, "plot": 270.0},
    "rule_mb": {"decode": 1250.0, "plot": 170.0},
}


@pytest.fixture
def published(tmp_path):
    folder = tmp_path / "docs" / README_RUN
    for name, text in (
        ("tables/main.csv", MAIN),
        ("tables/datasets.csv", DATASETS),
        ("tables/agreement.csv", AGREEMENT),
        ("bench/decode.csv", BENCH),
        ("manifest.json", json.dumps(MANIFEST)),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    captions = tmp_path / "workflow/report"
    captions.mkdir(parents=True)
    return Published(folder=folder, captions=captions)


@pytest.fixture
def eight(published):
    return published.cell("main", decode="T0", policy="fixed:8")


@pytest.fixture
def write_template(tmp_path):
    def write(name, text):
        path = tmp_path / "docs/readme" / f"{name}.md.j2"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path.parent

    return write


def test_prints_numbers(eight):
    assert eight.number("speedup", 1) == "2.4"
    assert eight.number("speedup", 0, scale=1000) == "2,400"
    assert eight.count("n") == "1,410"
    assert eight.value("speedup") == 2.4002
    assert eight.text("policy") == "fixed:8"


def test_prints_intervals(eight):
    assert eight.interval("speedup", 2) == "2.40 [2.25, 2.54]"
    # By default as the tables do: three digits of the largest of the three numbers.
    assert eight.interval("gain") == "-1.23 [-1.35, -1.10]"


def test_a_gain_as_a_loss_keeps_the_lower_end_first(eight):
    assert eight.interval("gain", 2, scale=-1) == "1.23 [1.10, 1.35]"


def test_a_ratio_as_what_it_adds(published):
    oracle = published.cell("main", decode="T0", policy="oracle")
    assert oracle.percent("speedup", minus=1) == "7 %"
    assert oracle.percent_interval("speedup", minus=1) == "7 % [4, 10]"
    assert oracle.percent("gain", 1) == "14.8 %"


def test_what_rounds_to_zero_has_no_sign(published):
    assert published.cell("main", decode="T1").number("gain", 2) == "0.00"


def test_counts_outcomes(published, eight):
    assert eight.all_of("equal_text") == "all 36"
    assert published.cell("main", decode="T0", policy="oracle").all_of("equal_text") == "35 of 36"
    texts = published.bench("decode", setting="T=0, texts equal*")
    assert texts.all_of("setting") == "all 960"
    assert texts.last_number("system") == "8"


def test_adds_up_rows(published):
    assert published.rows("main", decode=["T0", "T1"]) == "3"
    assert published.total("datasets", "prompts", split="test") == "103"
    assert published.share("agreement", "equal_pairs", "num_pairs", decode="T1", decimals=1) == (
        "95.5 %"
    )
    assert published.all_of("agreement", "equal_pairs", "num_pairs", decode="T0") == "all 54"
    assert published.all_of("agreement", "equal_pairs", "num_pairs") == "1,200 of 1,254"


def test_counts_only_in_domain_prompts(published):
    assert published.prompts() == "1,023"
    assert published.prompts("test") == "23"


def test_reads_the_manifest(published):
    assert published.manifest("config.decode.max_new_tokens") == "1,920"
    assert published.manifest("machine.processor") == "Abacus"
    assert published.manifest("rule_s.plot", 1, scale=1 / 60) == "4.5"
    assert published.job_share("decode", "sweep") == "25 %"
    assert published.job_memory_gb() == "1.2"


def test_finds_the_extreme_row(published):
    assert published.extreme("main", "gain").text("policy") == "oracle"
    assert published.extreme("main", "gain", sign=-1, decode=["T0"]).text("policy") == "fixed:8"


def test_divides_cells(published, eight):
    assert published.ratio(eight.value("n"), eight.value("gain_high"), 1) == "-1,281.8"


@pytest.mark.parametrize(
    ("look_up", "message"),
    [
        (lambda p: p.cell("main", decode="T2"), r"main.csv where decode='T2' is '0 rows'"),
        (lambda p: p.cell("main", decode="T0"), r"main.csv where decode='T0' is '2 rows'"),
        (lambda p: p.cell("main", variant="T0"), "filter of tables/main.csv is 'variant'"),
        (lambda p: p.cell("none", decode="T0"), "none.csv"),
        (lambda p: p.cell("main", decode="T1").number("tau", 2), "decode='T1' is 'tau'"),
        (lambda p: p.cell("main", decode="T1").number("empty", 2), "empty of .*decode='T1' is nan"),
        (lambda p: p.cell("main", decode="T1").text("empty"), "empty of .*decode='T1' is nan"),
        (lambda p: p.cell("main", decode="T1").number("policy", 2), "'oracle'; allowed: a number"),
        (lambda p: p.cell("main", decode="T1").interval("n"), "'n_low'"),
        (lambda p: p.cell("main", decode="T1").count("gain"), "-0.0004; allowed: a whole number"),
        (lambda p: p.cell("main", decode="T1").all_of("policy"), "allowed: PART/WHOLE"),
        (lambda p: p.cell("main", decode="T1").last_number("policy"), "'oracle'"),
        (lambda p: p.rows("main", decode="T2"), "'0 rows'"),
        (lambda p: p.total("main", "empty"), "empty of .*main.csv where any is nan"),
        (lambda p: p.manifest("config.decode.tokens"), "'tokens' in manifest.json"),
        (lambda p: p.manifest("machine.processor.cores"), "'cores' in manifest.json"),
        (lambda p: p.job_share("decode", "replay"), "'replay' in manifest.json"),
        (lambda p: p.caption("speedup"), "speedup.rst"),
    ],
)
def test_names_what_it_cannot_find(published, look_up, message):
    with pytest.raises(BlockPilotError, match=message):
        look_up(published)


def test_captions_become_markdown(published):
    path = published.captions / "speedup.rst"
    path.write_text("1 is ``ar``;\n*bounds* are hollow.\n")
    assert published.caption("speedup") == "1 is `ar`;\n*bounds* are hollow."


@pytest.mark.parametrize(
    "text", [".. note:: x", "a :math:`b`", "{{ snakemake }}", "a\n\nb", "a_ `b`_"]
)
def test_refuses_captions_that_markdown_cannot_show(published, text):
    (published.captions / "speedup.rst").write_text(text)
    with pytest.raises(BlockPilotError, match=r"speedup\.rst"):
        published.caption("speedup")


def test_fills_blocks_and_touches_nothing_else(published, write_template):
    write_template("one", '{% set of = cell("main", decode="T1") %}\n{{ of.number("n", 0) }} \\1\n')
    templates = write_template("two", "in {{ docs }}")
    before = (
        "# A\n9.99 x\n<!-- results:one -->\nold\n\n9.99\n<!-- /results:one -->\n\n  b 1,410  \n"
    )
    second = "<!-- results:two -->\n<!-- /results:two -->"
    filled = render_blocks(before + second, templates, published)
    assert filled == (
        "# A\n9.99 x\n<!-- results:one -->\n1,410 \\1\n<!-- /results:one -->\n\n  b 1,410  \n"
        f"<!-- results:two -->\nin docs/{README_RUN}\n<!-- /results:two -->"
    )
    assert render_blocks(filled, templates, published) == filled


@pytest.mark.parametrize(
    "text",
    [
        "<!-- results:one -->\n",
        "<!-- /results:one -->\n",
        "<!-- results:one -->\n<!-- /results:two -->\n",
        "<!-- results:one -->\n<!-- results:two -->\n<!-- /results:one -->\n",
        "<!-- results:one --> 5\n<!-- /results:one -->\n",
    ],
)
def test_refuses_markers_without_partner(published, write_template, text):
    templates = write_template("one", "1")
    with pytest.raises(BlockPilotError, match=r"marker in README\.md is '<!-- /?results:"):
        render_blocks(text, templates, published)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ cell('main', decode='T2') }}", "one.md.j2: tables/main.csv where decode='T2'"),
        ("{{ cel('main') }}", "one.md.j2 is .*'cel' is undefined"),
        ("{{ cell('main', decode='T1').number('n') }}", "one.md.j2 is .*decimals"),
        ("{{ cell('main', decode='T1').mean('n') }}", "one.md.j2 is .*mean"),
        ("{{ ratio(1, 0) }}", "one.md.j2 is .*division"),
        ("{{ 5", "one.md.j2 is "),
        ("{{ claim('Pays', 1 > 2) }}", "one.md.j2: claim is 'Pays'"),
        (None, "template is .*one.md.j2"),
    ],
)
def test_names_the_template_that_fails(published, write_template, template, message):
    templates = write_template("two" if template is None else "one", template or "")
    with pytest.raises(BlockPilotError, match=message):
        render_blocks("<!-- results:one -->\n<!-- /results:one -->", templates, published)


def test_claims_need_all_their_conditions():
    assert claim("Pays", True, 1 > 0) == "Pays"
    with pytest.raises(BlockPilotError, match="condition 1, 3 fails"):
        claim("Pays", False, True, False)


def test_refreshes_only_the_readme_of_its_run(published, write_template, tmp_path, capsys):
    write_template("one", "{{ rows('main') }}")
    readme = tmp_path / "README.md"
    readme.write_text("<!-- results:one -->\n<!-- /results:one -->\n")
    assert "left as it is" in refresh_readme(tmp_path, "smoke")
    assert "\n3\n" not in readme.read_text()
    assert cli.main(["readme", f"--root={tmp_path}"]) == 0
    assert readme.read_text() == "<!-- results:one -->\n3\n<!-- /results:one -->\n"
    assert "now has the numbers" in capsys.readouterr().out
    assert "already has" in refresh_readme(tmp_path)


def test_a_failed_refresh_leaves_the_readme(published, write_template, tmp_path, capsys):
    write_template("one", "{{ rows('nothing') }}")
    text = "<!-- results:one -->\nold\n<!-- /results:one -->\n"
    (tmp_path / "README.md").write_text(text)
    assert cli.main(["readme", f"--root={tmp_path}"]) == 1
    assert "nothing.csv" in capsys.readouterr().err
    assert (tmp_path / "README.md").read_text() == text
