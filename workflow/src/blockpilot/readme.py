"""README.md's results: blocks between markers, filled from templates with published numbers.

Templates under docs/readme hold the words. In them, `cell("main", decode="T0", policy="oracle",
group="average").interval("speedup", 2)` prints a number of docs/RUN/tables; the other functions
are those of `LOOKUPS`, methods of `published.Published`. Words that only some numbers bear out are
written as `claim("Drafting pays", cell(...).value("speedup") > 1)`.
"""

from __future__ import annotations

import re
from pathlib import Path

from blockpilot.catalogue import FIGURES
from blockpilot.errors import BlockPilotError, bad_input
from blockpilot.provenance import write_text
from blockpilot.published import Published, read_text

README_RUN = "pocket"  # the run whose numbers README.md prints
TEMPLATES, CAPTIONS = Path("docs/readme"), Path("workflow/report")
SUFFIX = ".md.j2"
LOOKUPS = (
    *("cell", "bench", "manifest", "caption"),
    *(
        "extreme",
        "rows",
        "total",
        "share",
        "all_of",
        "prompts",
        "job_share",
        "job_memory_gb",
        "ratio",
    ),
)
BLOCK = re.compile(
    r"(?P<start><!-- results:(?P<name>\w+) -->\n)(?P<body>.*?)(?P<end><!-- /results:(?P=name) -->)",
    re.DOTALL,
)
MARKER = re.compile(r"<!-- /?results:")


def render_blocks(readme_text: str, templates: Path, published: Published) -> str:
    """Return README.md with its blocks filled in again, everything else as it was.

    Args:
        readme_text: Holds blocks, each between `<!-- results:NAME -->` and
            `<!-- /results:NAME -->` on lines of their own.
        templates: Folder of NAME.md.j2.
        published: What the templates print.

    Raises:
        BlockPilotError: If a marker has no partner, or a template is missing or cannot be filled.
    """
    _check_markers(BLOCK.sub("", readme_text))

    def fill(block: re.Match) -> str:
        _check_markers(block["body"])
        return f"{block['start']}{render_block(block['name'], templates, published)}{block['end']}"

    return BLOCK.sub(fill, readme_text)


def render_block(name: str, templates: Path, published: Published) -> str:
    """Return one filled template, ending in one line break; errors as of `render_blocks`."""
    import jinja2  # comes with Snakemake: who only decodes needs neither

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["claim"] = claim
    environment.globals["figures"] = FIGURES
    environment.globals["docs"] = f"docs/{published.folder.name}"
    environment.globals |= {name: getattr(published, name) for name in LOOKUPS}
    path = f"{name}{SUFFIX}"
    try:
        return environment.get_template(path).render().strip() + "\n"
    except jinja2.TemplateNotFound as error:
        raise bad_input("template", str(templates / path), "a file", "Write it.") from error
    except (jinja2.TemplateError, TypeError, ArithmeticError) as error:
        raise bad_input(path, str(error), "a template that can be filled", "Mend it.") from error
    except BlockPilotError as error:
        raise BlockPilotError(f"{path}: {error}") from error


def claim(words: str, *conditions: bool) -> str:
    """Return words of a template, if every condition under which they are true holds."""
    if not all(conditions):
        broken = ", ".join(str(i) for i, holds in enumerate(conditions, 1) if not holds)
        remedy = f"Say what the new numbers show (condition {broken} fails)."
        raise bad_input("claim", words, "words that the numbers bear out", remedy)
    return words


def refresh_readme(root: Path, run: str = README_RUN) -> str:
    """Fill README.md again from docs/RUN, if that is the run it speaks of.

    Returns:
        What was done, in a sentence.

    Raises:
        BlockPilotError: As of `render_blocks`; README.md is then left as it was.
    """
    if run != README_RUN:
        return f"README.md speaks of {README_RUN}, not of {run}: left as it is"
    path = root / "README.md"
    text = read_text(path, "Give the folder of the repository.")
    published = Published(folder=root / "docs" / run, captions=root / CAPTIONS)
    filled = render_blocks(text, root / TEMPLATES, published)
    if filled == text:
        return f"README.md already has the numbers of docs/{run}"
    write_text(path, filled)
    return f"README.md now has the numbers of docs/{run}"


def _check_markers(text: str) -> None:
    if found := MARKER.search(text):
        line = text[found.start() :].splitlines()[0]
        remedy = "Close it with <!-- /results:NAME --> before the next one begins."
        raise bad_input("marker in README.md", line, "pairs of one name", remedy)
