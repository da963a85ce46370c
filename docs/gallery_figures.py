"""How the gallery finds figures, which are in no list of pyplot's."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst


def scrape(block: tuple[str, str, int], block_vars: dict[str, Any], gallery: dict[str, Any]) -> str:
    """Save the figure that a block of an example has made under the name `figure`."""
    found = block_vars["example_globals"].get("figure")
    if not isinstance(found, Figure) or getattr(found, "in_gallery", False):
        return ""
    path = next(block_vars["image_path_iterator"])
    found.savefig(path, dpi=110)
    found.in_gallery = True  # type: ignore[attr-defined]
    return figure_rst([path], gallery["src_dir"])


def _get_sg_image_scraper() -> Any:
    return scrape
