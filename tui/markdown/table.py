"""A table -> rows: columns as wide as they need, cells wrapped where room is short, a list of fields where shorter."""

from __future__ import annotations

from localinfer.tui.markdown.rows import Row, Run, row_width, wrap

GAP = 2
MIN_COLUMN = 6
Cell = list[Run]


def table_rows(head: list[Cell], body: list[list[Cell]], aligns: list[str], width: int) -> list[Row]:
    """`aligns` holds 'left', 'right' or 'center' a column. No row is wider than `width`, unless it is tiny."""
    n = len(head)
    natural = [max((_natural(line[i]) for line in [head, *body] if i < len(line)), default=1) for i in range(n)]
    room = width - GAP * (n - 1)
    if room < MIN_COLUMN * n and sum(natural) > room:
        return _as_fields(head, body, width)
    widths = _shares(natural, room)
    rule: Row = [("─" * (sum(widths) + GAP * (n - 1)), ("rule",))]
    rows = [*_line([_styled(cell) for cell in head], widths, aligns), rule]
    for line in body:
        rows += _line(line, widths, aligns)
    return rows


def _natural(cell: Cell) -> int:
    return max(1, row_width(cell))


def _styled(cell: Cell) -> Cell:
    return [(text, ("table-head", *styles)) for text, styles in cell]


def _shares(natural: list[int], room: int) -> list[int]:
    """Shrink the widest columns first until all fit into `room`."""
    if sum(natural) <= room:
        return natural
    low, high = 1, max(natural)
    while low < high:  # the largest cap on a column's width at which they fit
        cap = (low + high + 1) // 2
        if sum(min(w, cap) for w in natural) <= room:
            low = cap
        else:
            high = cap - 1
    widths = [min(w, low) for w in natural]
    spare = room - sum(widths)
    for i, want in enumerate(natural):
        if spare > 0 and want > widths[i]:
            widths[i] += 1
            spare -= 1
    return widths


def _line(cells: list[Cell], widths: list[int], aligns: list[str]) -> list[Row]:
    """The rows of one table line; cells that wrap make it higher."""
    columns = [wrap(cells[i] if i < len(cells) else [], widths[i]) for i in range(len(widths))]
    rows: list[Row] = []
    for y in range(max(len(column) for column in columns)):
        row: Row = []
        for i, column in enumerate(columns):
            cell = column[y] if y < len(column) else []
            row += _aligned(cell, widths[i], aligns[i] if i < len(aligns) else "left")
            if i < len(columns) - 1:
                row.append((" " * GAP, ()))
        rows.append(row)
    return rows


def _aligned(cell: Row, width: int, align: str) -> Row:
    pad = max(0, width - row_width(cell))
    left = pad if align == "right" else pad // 2 if align == "center" else 0
    return [(" " * left, ()), *cell, (" " * (pad - left), ())]


def _as_fields(head: list[Cell], body: list[list[Cell]], width: int) -> list[Row]:
    """Each table line as `heading: value` rows, with a rule between."""
    rows: list[Row] = []
    for index, line in enumerate(body):
        if index:
            rows.append([("─" * min(width, 12), ("rule",))])
        for name, value in zip(head, line, strict=False):
            rows += wrap([*_styled(name), (": ", ("table-head",)), *value], width)
    return rows or wrap([run for cell in head for run in [*_styled(cell), (" ", ())]], width)
