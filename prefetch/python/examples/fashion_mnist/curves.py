"""Draws the loss and the accuracy of a training as SVG."""

from __future__ import annotations

from html import escape
from typing import List, Sequence, Tuple

__all__ = ["draw"]

Point = Sequence[float]

_WIDTH, _HEIGHT = 460, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 20, 44, 46


def draw(loss: Sequence[Point], accuracy: Sequence[Point], title: str, note: str) -> str:
    """A picture of two panels. Points are (step, value), accuracy as a share of one."""
    steps = max(p[0] for p in (*loss, *accuracy))
    percent = [(step, value * 100) for step, value in accuracy]
    # Axes begin and end at round figures around the values.
    top = max(value for _, value in loss) * 1.05
    low = 10 * int(min(value for _, value in percent) // 10)
    panels = [
        _panel(0, "training loss (mean of the last steps)", loss, steps, 0.0, top, "#1f6fb2", "{:.2f}", False),
        _panel(_WIDTH, "test accuracy, %", percent, steps, low, 100.0, "#b2571f", "{:.1f}", True),
    ]
    width, height = 2 * _WIDTH, _HEIGHT + 66
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="20" y="28" font-size="18">{escape(title)}</text>',
        f'<g transform="translate(0 36)">{"".join(panels)}</g>',
        f'<text x="20" y="{height - 12}" font-size="11" fill="#555">{escape(note)}</text>',
        "</svg>", ""])


def _panel(x: float, title: str, points: Sequence[Point], steps: float, low: float, high: float, colour: str,
           form: str, label_points: bool) -> str:
    def place(point: Point) -> Tuple[float, float]:
        inner_width, inner_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return (_LEFT + point[0] / steps * inner_width,
                _TOP + inner_height - (point[1] - low) / (high - low) * inner_height)

    parts: List[str] = [f'<g transform="translate({x} 0)">', f'<text x="{_LEFT}" y="{_TOP - 14}" font-size="13">{title}</text>']
    for i in range(5):
        value = low + (high - low) * i / 4
        _, y = place((0, value))
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>'
                     f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" font-size="11" text-anchor="end">{form.format(value)}</text>')
    for i in range(5):
        px, _ = place((steps * i / 4, low))
        parts.append(f'<text x="{px:.1f}" y="{_HEIGHT - _BOTTOM + 18}" font-size="11" text-anchor="middle">'
                     f'{round(steps * i / 4)}</text>')
    parts.append(f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 10}" font-size="11" text-anchor="middle">step</text>')
    places = [place(p) for p in points]
    line = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for (px, py), point in zip(places, points):
        if label_points:
            parts.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/><text x="{px:.1f}" y="{py - 9:.1f}" '
                         f'font-size="11" text-anchor="end">{form.format(point[1])}</text>')
    parts.append("</g>")
    return "".join(parts)
