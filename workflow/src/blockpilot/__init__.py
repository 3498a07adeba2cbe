"""How long a block should a diffusion drafter propose for this prompt?

    from blockpilot import Selector, SelectorPolicy, generate, load_draft, load_target

Names are loaded on first use: the Snakefile imports this package in every job.
"""

from importlib import import_module

_HOMES = {
    "FixedPolicy": "policies",
    "ArPolicy": "policies",
    "Selector": "selector",
    "SelectorPolicy": "policies",
    "generate": "decode",
    "load_draft": "draft",
    "load_target": "target",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    """Import a public name from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module 'blockpilot' has no attribute {name!r}")
    return getattr(import_module(f"blockpilot.{_HOMES[name]}"), name)
