"""`tilewright cache`: what the compile cache holds, and emptying it."""

from __future__ import annotations

import typer

from ..errors import CacheError
from ..runtime.cache import CompileCache
from . import show

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None,
    help="The compile cache on disk: finished machine code, so that a second run starts at once.",
)  # fmt: skip

_JSON = typer.Option(False, "--json", help="Print JSON.")


@app.command("info")
def info(json: bool = _JSON) -> None:
    """Where the cache is, how many entries it has and how large it is.

    The place is TILEWRIGHT_CACHE_DIR when set.
    """
    found = CompileCache().info()
    if json:
        show.print_json(found.to_json())
        return
    table = show.table("compile cache", "what", "value")
    table.add_row("directory", found.root)
    table.add_row("entries", str(found.entries))
    table.add_row("size", f"{show.size(found.bytes)} of at most {show.size(found.max_bytes)}")
    if not found.usable:
        table.add_row("not used", found.reason)
    show.out.print(table)


@app.command("clear")
def clear(json: bool = _JSON) -> None:
    """Remove every entry. Kernels and models compile again when they are next used.

    Measured peaks are kept; `tilewright doctor --refresh` measures them again.
    """
    cache = CompileCache()
    before = cache.info()
    if not before.usable:
        raise CacheError(f"the cache cannot be cleared: {before.reason}")
    removed = cache.clear()
    if json:
        show.print_json({"root": before.root, "removed": removed, "bytes": before.bytes})
        return
    show.out.print(f"removed {removed} entries ({show.size(before.bytes)}) from {before.root}", highlight=False)
