"""How a page looks: at a width, on paper, and what of its tables is not to be seen."""

from contextlib import contextmanager


def at_width(browser, width):
    """Show pages in a window of a width."""
    metrics = {"width": width, "height": 740, "deviceScaleFactor": 1, "mobile": width < 700}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@contextmanager
def on_paper(browser):
    """Show pages as they are printed, as wide as A4 with the margins of a browser."""
    at_width(browser, 718)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


# What of a table is not to be seen: its right end beyond its box or the page, or a cell whose words are longer than it.
_CUT_OFF = """
    return [...document.querySelectorAll("table")].filter((table) => table.offsetParent).flatMap((table) => {
      const box = table.closest(".wide") ?? table.parentElement, edge = box.getBoundingClientRect().right + 1;
      const cells = [...table.querySelectorAll("tbody th, tbody td")];
      return [...(box.scrollWidth > box.clientWidth ? [table.caption?.textContent ?? "table"] : []),
        ...cells.filter((cell) => cell.getBoundingClientRect().right > edge || cell.scrollWidth > cell.clientWidth + 1
          || cell.getBoundingClientRect().height === 0).map((cell) => cell.textContent.slice(0, 40))];
    });
"""


def unfolded(browser):
    """Return the browser with all that is folded up on its page opened."""
    browser.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    return browser


def cut_off(browser):
    """Return what of the tables of a page is beyond the edge of their place, wherever they are folded up or not."""
    return unfolded(browser).execute_script(_CUT_OFF)
