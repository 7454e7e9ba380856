"""The status page in a real browser: opened, waited for, looked at, and measured."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome
from selenium.webdriver.support.wait import WebDriverWait

WAIT_SECONDS_MAX = 180.0

PHONE, DESK = 390, 1440

CUT_OFF = "net::ERR_NETWORK_CHANGED"
"""Chromium drops what it is loading when an interface of this machine comes or goes, as those of containers do."""

READ_CLIPPED = """
    const scrolls = (element) => getComputedStyle(element).textOverflow !== "ellipsis";
    const isWide = (element) => element.clientWidth > 0 && element.scrollWidth > element.clientWidth + 1;
    return Array.from(document.querySelectorAll("body *:not(svg *):not(.spoken)"))
        .filter((element) => getComputedStyle(element).overflowX !== "visible" && isWide(element) && scrolls(element))
        .map((element) => element.outerHTML.slice(0, 120));
"""
"""Elements whose content is wider than they are, so that a part of it cannot be seen."""

READ_FAINT_TEXT = """
    const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const channels = (colour) => {
        context.clearRect(0, 0, 1, 1);
        context.fillStyle = colour;
        context.fillRect(0, 0, 1, 1);
        return Array.from(context.getImageData(0, 0, 1, 1).data);
    };
    const luminance = (colour) => {
        const [r, g, b] = channels(colour).map((c) => (c / 255 <= 0.04045 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (element) => {
        for (let one = element; one; one = one.parentElement) {
            const colour = getComputedStyle(one).backgroundColor;
            if (channels(colour)[3] === 255) return colour;
        }
        return "white";
    };
    const hasText = (element) => Array.from(element.childNodes).some((node) => node.nodeType === 3 && node.data.trim());
    return Array.from(document.querySelectorAll("body *"))
        .filter((element) => hasText(element) && element.getClientRects().length > 0 && !(element instanceof SVGTitleElement))
        .map((element) => {
            const style = getComputedStyle(element);
            const colour = element instanceof SVGElement ? style.fill : style.color;
            const levels = [luminance(colour), luminance(ground(element))].sort((a, b) => b - a);
            const size = parseFloat(style.fontSize);
            const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
            return { text: element.textContent.trim().slice(0, 40), contrast: (levels[0] + 0.05) / (levels[1] + 0.05), least: isLarge ? 3 : 4.5 };
        });
"""  # noqa: E501
"""Contrast of every visible text by WCAG 2's formula, and the least that level AA allows for its size."""

WATCH_SHIFTS = """
    window.shifts = [];
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) {
            const sources = entry.sources.map(({ node }) => node?.outerHTML?.slice(0, 80) ?? node?.data);
            window.shifts.push([entry.value, sources]);
        }
    }).observe({ type: "layout-shift" });
"""

WATCH_CHANGES = """
    let changes = 0;
    new MutationObserver((records) => { changes += records.length; })
        .observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
    window.countChanges = () => { const counted = changes; changes = 0; return counted; };
"""

READ_MOVED_BY_LONG_FIGURES = """
    const tops = () => Array.from(document.querySelectorAll("main > *"), (panel) => panel.offsetTop);
    const before = tops();
    const long = [["0.6931"], ["100.0 %"], ["1,234.5"], ["23 h 59 min"], ["23 h 59 min", "999 MB sent"], ["128 of 128"],
                  ["1,024 of 1,024"]];
    const places = document.getElementById("figures").children;
    long.forEach((texts, k) => texts.forEach((text, part) => (places[k].children[1 + part].textContent = text)));
    const names = Array.from(document.querySelectorAll("main > *"), (panel) => panel.id || panel.className);
    return tops().flatMap((top, k) => (top === before[k] ? [] : [[names[k], before[k], top]]));
"""


class Page:
    """One browser window at the page of one node. folder: where screenshots go."""

    def __init__(self, browser: Chrome, folder: Path) -> None:
        self._browser = browser
        self._folder = folder
        self._complaints: list[str] = []

    def open(self, address: str, *, theme: str = "light", width: int = DESK) -> None:
        self._command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self._command(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        while True:
            self._browser.get(f"http://{address}/")
            complaints = self._hear()
            if not any(CUT_OFF in complaint for complaint in complaints):
                break
        self._complaints += complaints

    def read(self, script: str) -> Any:
        return self._browser.execute_script(script)

    def text(self, element: str) -> str:
        return self.read(f"return document.getElementById({json.dumps(element)}).textContent.trim()")

    def facts(self, element: str) -> dict[str, str]:
        """Values of a list by their words."""
        read = f"return Array.from(document.getElementById({json.dumps(element)}).children, (one) => one.innerText)"
        told = (text.split("\n") for text in self.read(read))
        return {word: value for word, value, *_ in told}

    def notes(self, element: str) -> dict[str, str]:
        """What stands below these values, by their words."""
        read = f"return Array.from(document.getElementById({json.dumps(element)}).children, (one) => one.innerText)"
        told = (text.split("\n") for text in self.read(read))
        return {word: notes[0] if notes else "" for word, _, *notes in told}

    def sentences(self, element: str) -> list[str]:
        read = f"return Array.from(document.getElementById({json.dumps(element)}).children, (one) => one.textContent)"
        return self.read(read)

    def wait_until(self, is_true: Callable[["Page"], bool], what: str) -> None:
        WebDriverWait(self, WAIT_SECONDS_MAX, poll_frequency=0.1).until(is_true, f"never seen: {what}; {self.glance()}")

    def wait_for(self, element: str, text: str) -> None:
        self.wait_until(lambda page: page.text(element) == text, f"#{element} = {text!r}")

    def wait_for_fact(self, element: str, word: str, value: str) -> None:
        self.wait_until(lambda page: page.facts(element).get(word) == value, f"{word}: {value} in #{element}")

    def wait_for_row(self, table: str, name: str, text: str) -> None:
        """A table's row with this name that has a cell with this text."""
        self.wait_until(lambda page: text in page.rows(table).get(name, ()), f"{name}: {text} in #{table}")

    def rows(self, table: str) -> dict[str, list[str]]:
        """Texts of the cells of each row by that of the first."""
        rows = self.read(
            f"return Array.from(document.getElementById({json.dumps(table)}).tBodies[0].rows, "
            "(row) => Array.from(row.cells, (cell) => cell.textContent.trim()))"
        )
        return {name: cells for name, *cells in rows}

    @property
    def step(self) -> int:
        text = self.text("step").replace(",", "")
        return int(text) if text.isdigit() else -1

    def wait_for_steps(self, count: int) -> None:
        """Until the page shows as many steps more than it does now."""
        goal = self.step + count
        self.wait_until(lambda page: page.step >= goal, f"step {goal}")

    def glance(self) -> str:
        """What a failed test says it saw."""
        return " | ".join(self.text(element) for element in ("node-name", "state", "step", "banner-title"))

    def console(self) -> list[str]:
        """What the browser complained of since this was last asked."""
        complaints = [*self._complaints, *self._hear()]
        self._complaints.clear()
        return [complaint for complaint in complaints if CUT_OFF not in complaint]

    def _hear(self) -> list[str]:
        return [f"{entry['level']}: {entry['message']}" for entry in self._browser.get_log("browser")]  # type: ignore[no-untyped-call]

    def watch_work(self) -> None:
        self._command("Profiler.enable")
        self._command("Profiler.startPreciseCoverage", callCount=True, detailed=False)
        self.read(WATCH_CHANGES)

    def count_work(self) -> tuple[int, int, int]:
        """Since this was last asked: how often all was shown, calls of the page's functions, changes of elements."""
        scripts = self._command("Profiler.takePreciseCoverage")["result"]
        own = [script for script in scripts if script["url"].startswith(self.read("return location.origin"))]
        calls = [(f["functionName"], f["ranges"][0]["count"]) for script in own for f in script["functions"]]
        shown = sum(count for name, count in calls if name == "showMembers")
        return shown, sum(count for _, count in calls), self.read("return window.countChanges()")

    def unnamed_elements(self) -> list[str]:
        """Roles of what a screen reader would announce without a name."""
        wanted = {"button", "combobox", "figure", "image", "link", "progressbar", "region"}
        return [
            node["role"]["value"]
            for node in self._command("Accessibility.getFullAXTree")["nodes"]
            if not node["ignored"] and node["role"]["value"] in wanted and not node.get("name", {}).get("value")
        ]

    def screenshot(self, name: str) -> Path:
        """The whole page, not only what is on the screen."""
        size = self._command("Page.getLayoutMetrics")["cssContentSize"]
        path = self._folder / f"{name}.png"
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        picture = self._command("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(picture["data"]))
        return path

    def _command(self, name: str, **parameters: Any) -> Any:
        return self._browser.execute_cdp_cmd(name, parameters)
