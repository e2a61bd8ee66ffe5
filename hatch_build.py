"""Metadata of the package that is computed when it is built: a README without relative links, and the address of the project.

The variable SUPEROPT_URL has the address of the repository. The release workflow sets it. Without it, links to files of the
repository become text, and the package has no project URLs.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]+)\]\((?!https?:|#)([^)\s]+)\)")


class CustomMetadataHook(MetadataHookInterface):
    """Set the fields `readme` and `urls` of the project."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the fields in `metadata`, the table `project` of pyproject.toml."""
        url, tag = os.environ.get("SUPEROPT_URL", "").rstrip("/"), f"v{metadata['version']}"
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute_links(text, url, tag)}
        if url:
            metadata["urls"] = {
                "Repository": url,
                "Documentation": f"{url}/blob/{tag}/docs/index.md",
                "Changelog": f"{url}/blob/{tag}/CHANGELOG.md",
                "Issues": f"{url}/issues",
            }


def absolute_links(markdown: str, url: str, tag: str) -> str:
    """Replace relative links by links to the repository at `url`, or by their text and path if `url` is empty.

    Images are left out if `url` is empty.
    """

    def replaced(link: re.Match[str]) -> str:
        image, text, path = link.groups()
        if url:
            return f"{image}[{text}]({url}/{'raw' if image else 'blob'}/{tag}/{path})"
        if image:
            return ""
        return text if text.rstrip("/") == path else f"{text} ({path})"

    return LINK.sub(replaced, markdown)
