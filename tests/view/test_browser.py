"""What a person sees and does: saved pages and a real JupyterLab, in headless Chromium.

Without a browser the tests are skipped, or fail where THEANOGUARD_NEEDS_BROWSER is set, as in
continuous integration.  Screenshots go to the directory THEANOGUARD_SCREENSHOTS, by default a
temporary one; with ``--update-golden`` those of the documentation are written anew.
"""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from guarding import guarded

from theanoguard import GuardError, inspect_graph, track_provenance

pytestmark = pytest.mark.on_33

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "examples" / "notebooks"
IMAGES = ROOT / "docs" / "images"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
NASTY = "</script><img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"


def missing():
    """What the tests need and do not find; empty if there is everything."""
    if not find_spec("selenium"):
        return "selenium is not installed"
    if not any(map(shutil.which, CHROMIUM)):
        return "there is no Chromium"
    return "" if shutil.which("chromedriver") else "there is no chromedriver"


@pytest.fixture(scope="module")
def browser():
    if reason := missing():
        if os.environ.get("THEANOGUARD_NEEDS_BROWSER"):
            pytest.fail(f"{reason}, and THEANOGUARD_NEEDS_BROWSER is set")
        pytest.skip(reason)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, CHROMIUM)))
    for argument in ("--headless=new", "--no-sandbox", "--window-size=1280,1000"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture
def look(browser, screenshot):
    return Looking(browser, screenshot)


@pytest.fixture(scope="module")
def screenshot(browser, request, tmp_path_factory):
    """``screenshot(name, element)`` keeps what is seen when an element is at the top."""
    kept = os.environ.get("THEANOGUARD_SCREENSHOTS")
    directory = Path(kept) if kept else tmp_path_factory.mktemp("screenshots")
    directory.mkdir(parents=True, exist_ok=True)

    def take(name, element=None):
        path = directory / f"{name}.png"
        if element is not None:
            browser.execute_script("arguments[0].scrollIntoView()", element)
        browser.save_screenshot(str(path))
        shown = re.fullmatch(r"((?:trip|stepper|picture)_(?:light|dark))_1280", name)
        if request.config.getoption("--update-golden") and shown:
            shutil.copy(path, IMAGES / f"{shown[1]}.png")

    return take


class Looking:
    """Waiting, finding and pressing keys."""

    def __init__(self, browser, screenshot):
        self.browser = browser
        self.screenshot = screenshot

    def wait(self, condition, what, seconds=60):
        """Return the first true result of `condition()`."""
        from selenium.common.exceptions import WebDriverException

        end = time.monotonic() + seconds
        while True:
            try:
                if found := condition():
                    return found
            except WebDriverException:  # what is being drawn comes and goes
                if time.monotonic() > end:
                    raise
            if time.monotonic() > end:
                self.screenshot("failure")
                pytest.fail(f"waited in vain for {what}")
            time.sleep(0.2)

    def all(self, css):
        return self.browser.find_elements("css selector", css)

    def one(self, css, text=""):
        """The first element shown that has this text."""

        def find():
            return next((e for e in self.all(css) if text in e.text and e.is_displayed()), None)

        return self.wait(find, f"{css} with {text!r}")

    def keys(self, *keys):
        from selenium.webdriver import ActionChains

        ActionChains(self.browser).send_keys(*keys).perform()

    def chord(self, held, key):
        """Press a key while another one is held."""
        from selenium.webdriver import ActionChains

        ActionChains(self.browser).key_down(held).send_keys(key).key_up(held).perform()

    def shift_enter(self):
        from selenium.webdriver.common.keys import Keys

        self.chord(Keys.SHIFT, Keys.ENTER)

    def step(self, share):
        """Click the timeline at a share of its length."""
        from selenium.webdriver import ActionChains

        def click():
            bar = self.one(".tg-timeline")
            before = bar.get_attribute("aria-valuenow")
            self.run("arguments[0].scrollIntoView({block: 'center'})", bar)
            by = round((share - 0.5) * (bar.rect["width"] - 4))
            ActionChains(self.browser).move_to_element_with_offset(bar, by, 0).click().perform()
            time.sleep(0.5)
            return bar.get_attribute("aria-valuenow") != before

        self.wait(click, "a click on the timeline")  # (what is above it may still be drawn)

    def everywhere(self, name, element):
        """Keep how it looks light and dark, wide and narrow; return where it is too wide."""
        wide = []
        for scheme in ("light", "dark"):
            for width in (1280, 800):
                self.prefer(scheme)
                size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
                self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
                time.sleep(1)  # (JupyterLab changes its theme)
                self.screenshot(f"{name}_{scheme}_{width}", element)
                if self.run("return arguments[0].getBoundingClientRect().right", element) > width:
                    wide.append(width)
        self.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.prefer("")
        return wide

    def check_accessible(self, css):
        """Fail for what axe-core finds in an element: contrast below 4.5 among others."""
        axe = pytest.importorskip("axe_selenium_python").Axe(self.browser)
        axe.inject()
        found = axe.run(context={"include": [[css]]})["violations"]
        assert not found, axe.report(found)

    def prefer(self, scheme):
        """Ask for light or dark pages, as the settings of an operating system do."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def is_theme(self, scheme):
        """Whether JupyterLab has taken the theme."""
        return (
            self.run("return document.body.dataset.jpThemeLight") == str(scheme == "light").lower()
        )

    def errors(self):
        """What the page and its scripts complained of."""
        return [
            entry["message"]
            for entry in self.browser.get_log("browser")
            if entry["level"] == "SEVERE" and "favicon" not in entry["message"]
        ]

    def focused(self):
        return self.browser.switch_to.active_element

    def run(self, script, *arguments):
        return self.browser.execute_script(script, *arguments)

    def row(self, label):
        """The row of a tree whose label is this."""

        def find():
            rows = self.all(".tg-row .tg-label")
            exact = [row for row in rows if row.text == label]
            found = next(iter([*exact, *(r for r in rows if r.text.startswith(label))]), None)
            return found and found.find_element("xpath", "../..")

        return self.wait(find, f"a row {label}")


@pytest.fixture(scope="module")
def error():
    x, w = pt.dvector("x"), pytensor.shared(np.ones(2), name=NASTY)
    out = pt.log(pt.dot(x, w) - 5)
    out.name = NASTY
    f = guarded([x], [out, pt.tanh(x)])
    f.name = NASTY
    with pytest.raises(GuardError) as caught:
        f(np.ones(2))
    return caught.value


@pytest.fixture
def saved(browser, look, error, tmp_path):
    """The saved page of a trip, opened, its graph unfolded."""
    path = tmp_path / "trip.html"
    inspect_graph(error).save(path)
    browser.get(path.as_uri())
    look.one("summary", "Graph of").click()
    look.one("[role=treegrid]")


# -- a saved page


def test_the_bad_node_is_chosen_and_the_way_to_it_open(saved, look):
    chosen = look.one(".tg-row[aria-selected=true]")
    assert "nan" in chosen.find_element("css selector", ".tg-event").get_attribute("title")
    assert "log" in look.one(".tg-panel").text.lower()
    levels = [int(row.get_attribute("aria-level")) for row in look.all(".tg-row")]
    assert max(levels) >= 2
    assert any(look.all(".tg-path"))


def test_names_are_only_text(saved, look):
    assert look.run("return window.hacked") is None
    assert look.all("img") == []
    assert "<" not in look.one("[role=treegrid]").get_attribute("aria-label")
    look.row(NASTY).click()
    assert NASTY in look.one(".tg-panel").text
    assert look.run("return window.hacked") is None


def test_the_tree_is_used_by_keyboard(saved, look):
    from selenium.webdriver.common.keys import Keys

    def rows():
        """The rows of the first tree; that of the compiled graph is folded below it."""
        return look.one(".tg-tree").find_elements("css selector", ".tg-row")

    assert [row.get_attribute("tabindex") for row in rows()].count("0") == 1
    look.one(".tg-row[aria-selected=true]").click()
    look.keys(Keys.HOME)
    first = look.focused()
    assert first == rows()[0]
    assert first.get_attribute("aria-level") == "1"
    assert first.get_attribute("aria-posinset") == "1"
    assert first.get_attribute("aria-setsize") == "2"
    if first.get_attribute("aria-expanded") == "true":
        look.keys(Keys.LEFT)
    assert first.get_attribute("aria-expanded") == "false"
    closed = len(rows())
    look.keys(Keys.RIGHT)
    assert first.get_attribute("aria-expanded") == "true"
    assert len(rows()) > closed
    look.keys(Keys.RIGHT)
    assert look.focused().get_attribute("aria-level") == "2"
    if look.focused().get_attribute("aria-expanded") == "true":
        look.keys(Keys.LEFT)
    look.keys(Keys.LEFT)
    assert look.focused() == first
    look.keys(Keys.END)
    assert look.focused() == rows()[-1]
    look.keys(Keys.UP, Keys.UP, Keys.DOWN)
    assert look.focused() == rows()[-2]
    look.keys("t")
    assert look.focused().find_element("css selector", ".tg-label").text.startswith("tanh")
    assert look.focused().get_attribute("aria-selected") == "true"
    assert "tanh" in look.one(".tg-panel").text


def test_search_opens_what_it_finds(saved, look):
    from selenium.webdriver.common.keys import Keys

    look.one("button", "Fold").click()
    few = len(look.all(".tg-row"))
    search = look.one("input[type=search]")
    search.send_keys("onerror")
    assert "1 of" in look.one("output").text
    assert NASTY in look.one(".tg-row[aria-selected=true]").text
    assert len(look.all(".tg-row")) >= few
    search.send_keys(Keys.ENTER)
    assert "2 of" in look.one("output").text
    search.clear()
    search.send_keys("no such thing")
    assert look.one("output").text == "0 found"
    look.one("button", "Bad node").click()
    mark = look.one(".tg-row[aria-selected=true] .tg-event")
    assert "nan" in mark.get_attribute("title")


def test_search_finds_names_first(saved, look):
    """All rows with the long name have an "x" in it; one is called so."""
    look.one("input[type=search]").send_keys("x")
    assert look.one("[aria-selected=true] .tg-label").text == "x"


def test_the_mark_is_the_first_thing_in_its_row(saved, look):
    row = look.one(".tg-row[aria-selected=true]")
    mark, label = (row.find_element("css selector", css) for css in (".tg-event", ".tg-label"))
    assert mark.location["x"] < label.location["x"]


@pytest.mark.parametrize("width", [420, 800])
def test_lines_of_a_report_are_not_wrapped_again(saved, look, width):
    """Carets and columns stay in place, and what is too wide is scrolled."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    look.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        report = look.one("pre.tg-report")
        style = "const s = getComputedStyle(arguments[0]);"
        line, padding = look.run(
            f"{style} return [parseFloat(s.lineHeight), 2 * parseFloat(s.paddingTop)]", report
        )
        lines = look.run("return arguments[0].textContent", report).rstrip("\n").split("\n")
        tall = look.run("return arguments[0].scrollHeight", report) - padding
        assert round(tall / line) == len(lines)
        assert report.rect["x"] + report.rect["width"] <= width
    finally:
        look.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def background(look):
    color = look.run("return getComputedStyle(document.querySelector('.tg-tree')).backgroundColor")
    return [int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(",")]


def test_light_and_dark(saved, look):
    try:
        look.prefer("dark")
        assert max(background(look)) < 60
        look.run("document.body.dataset.jpThemeLight = 'true'")
        assert min(background(look)) > 200
        look.prefer("light")
        look.run("document.body.dataset.jpThemeLight = 'false'")
        assert max(background(look)) < 60
    finally:
        look.prefer("")


def test_it_reads_without_script_and_style(browser, look, error, tmp_path):
    html = inspect_graph(error).html()
    for tag in ("script", "style"):
        while f"<{tag}>" in html:
            start, end = html.index(f"<{tag}>"), html.index(f"</{tag}>")
            html = html[:start] + html[end + len(tag) + 3 :]
    path = tmp_path / "stripped.html"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8>{html}", encoding="utf-8")
    browser.get(path.as_uri())
    assert "NaN in log" in look.one("pre").text
    look.one("summary", "Graph of").click()
    assert "nan" in look.one("mark").text
    assert NASTY in look.one("body").text
    look.one("summary", "The compiled graph").click()
    closed = look.one("summary", "inner graph") if look.all("mark") else None
    assert closed is not None
    shown = len([e for e in look.all("li") if e.is_displayed()])
    closed.click()
    assert len([e for e in look.all("li") if e.is_displayed()]) != shown


def test_a_large_graph_is_loaded_on_demand(browser, look, tmp_path):
    h = pt.dvector("start")
    for _ in range(3000):
        h = pt.tanh(h)
    inspect_graph(h).save(tmp_path / "large.html")
    browser.get((tmp_path / "large.html").as_uri())
    look.one("[role=treegrid]")
    assert len(look.all(".tg-row")) < 10
    look.one("input[type=search]").send_keys("start")
    assert look.one(".tg-row[aria-selected=true] .tg-label").text == "start"
    assert len(look.all(".tg-row")) == 3001


# -- the picture


@pytest.fixture(scope="module")
def net():
    """A graph of several calls of one function, with a mark deep inside."""

    def layer(h, n):
        w, b = pytensor.shared(np.eye(2), name=f"W{n}"), pytensor.shared(np.zeros(2), name=f"b{n}")
        return pt.tanh(pt.dot(h, w) + b)

    with track_provenance():
        h, marked = pt.dmatrix("x"), {}
        for n in range(30):
            h = layer(h, n)
            if n == 20:
                marked[h.owner] = f"nan in call 3 {NASTY}"
        loss = pt.log(h.sum())
        loss.name = "loss"
    return inspect_graph(loss, events=marked)


@pytest.fixture
def picture(browser, look, net, tmp_path):
    """The saved picture, opened."""
    browser.get_log("browser")
    net.picture().save(tmp_path / "net.html")
    browser.get((tmp_path / "net.html").as_uri())
    look.one(".tg-stage .tg-box")
    yield look
    assert browser.get_log("browser") == []
    assert look.run("return window.hacked") is None


def test_the_picture_opens_at_the_bad_node_at_readable_size(picture):
    bad = picture.one(".tg-stage .tg-bad")
    assert "nan in call 3" in bad.text
    height = picture.run(
        "return arguments[0].querySelector('text').getBoundingClientRect().height", bad
    )
    assert height >= 12
    middle = bad.rect["y"] + bad.rect["height"] / 2
    stage = picture.one(".tg-scroll").rect
    assert stage["y"] < middle < stage["y"] + stage["height"]
    assert picture.all(".tg-stage .tg-path")
    assert "nan in call 3" in picture.one(".tg-panel").text
    assert "overwritten in place" in picture.one(".tg-legend").text
    picture.screenshot("bad_node")


def test_the_picture_is_used_by_keyboard(picture):
    from selenium.webdriver.common.keys import Keys

    picture.run("document.querySelector('.tg-bar button:last-of-type').focus()")
    picture.keys(Keys.ENTER)  # Bad node
    assert "tg-bad" in picture.focused().get_attribute("class")
    assert picture.focused().get_attribute("role") == "button"
    title = picture.one("nav b").text
    assert title.startswith("around")
    picture.keys(Keys.ARROW_UP)
    assert "Add" in picture.focused().text
    picture.keys(Keys.ESCAPE)
    picture.keys(Keys.ESCAPE)
    way = picture.one("nav").text
    assert title not in way
    picture.run("document.querySelector('.tg-stage .tg-group').focus()")
    picture.keys(Keys.ENTER)
    assert picture.one("nav").text != way
    picture.keys("b")
    assert picture.one("nav b").text == title
    width = picture.one(".tg-scroll > svg").rect["width"]
    picture.keys("+")
    assert picture.one(".tg-scroll > svg").rect["width"] > width
    tabs = [box.get_attribute("tabindex") for box in picture.all(".tg-stage .tg-box")]
    assert tabs.count("0") == 1


@pytest.mark.parametrize(
    ("query", "count", "wanted"),
    [("W1", None, "W1"), ("op:log", 1, "Log"), ("name:loss", 1, "loss"), ("bad", 1, "nan in")],
)
def test_the_picture_is_searched(picture, query, count, wanted):
    picture.one("input[type=search]").send_keys(query)
    assert wanted in picture.one(".tg-stage .tg-chosen").text
    if count is not None:
        assert picture.one("output").text == f"1 of {count}"
    picture.one("input[type=search]").send_keys(" line:100000")
    assert picture.one("output").text == "0 found"


def test_the_map_leads_to_a_place(picture):
    for _ in range(3):
        picture.one("button[aria-label=Larger]").click()
    picture.run("document.querySelector('.tg-scroll').scrollTop = 0")
    scroll = picture.one(".tg-scroll")
    assert picture.one(".tg-map").is_displayed()
    before = picture.run("return arguments[0].scrollTop", scroll)
    picture.run(
        """
        const map = document.querySelector(".tg-map"), box = map.getBoundingClientRect();
        map.dispatchEvent(new PointerEvent("pointerdown", {
          clientX: box.left + box.width / 2, clientY: box.bottom - 1, buttons: 1,
        }));
        """
    )
    assert picture.run("return arguments[0].scrollTop", scroll) > before


def test_a_picture_without_scripts_is_an_image(browser, look, net, tmp_path):
    html = net.picture().html()
    html = html[: html.index("<template>")]
    path = tmp_path / "stripped.html"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8>{html}", encoding="utf-8")
    browser.get(path.as_uri())
    image = look.one(".tg-plain img")
    look.wait(lambda: look.run("return arguments[0].naturalWidth", image) > 100, "the image")


def test_a_picture_of_thousands_of_nodes_shows_its_first_view(browser, look, tmp_path):
    h = pt.dvector("start")
    for _ in range(5000):
        h = pt.tanh(h)
    inspect_graph(h).picture().save(tmp_path / "large.html")
    browser.get((tmp_path / "large.html").as_uri())
    look.one(".tg-stage .tg-box")
    assert len(look.all(".tg-stage .tg-box")) < 100
    look.one("input[type=search]").send_keys("start")
    assert look.one(".tg-stage .tg-chosen").text.startswith("start")


@pytest.mark.parametrize("shown", ["report", "picture"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_names_for_screen_readers(browser, look, error, net, shown, scheme, tmp_path):
    """What axe-core finds on saved pages: contrast of at least 4.5 among others."""
    path = tmp_path / "page.html"
    if shown == "report":
        inspect_graph(error).save(path)
    else:
        net.picture().save(path)
    look.prefer(scheme)
    try:
        browser.get(path.as_uri())
        if shown == "report":
            look.one("summary", "Graph of").click()
        look.one(".tg-panel")
        look.check_accessible("body")
        look.screenshot(f"{shown}_{scheme}")
    finally:
        look.prefer("")


# -- JupyterLab


@dataclass
class Lab:
    """A running JupyterLab with copies of the example notebooks."""

    folder: Path
    url: str
    token: str

    def address(self, name):
        # (a workspace of its own for each, or the last one's tabs come again)
        return f"{self.url}/workspaces/{name}/tree/{name}.ipynb?token={self.token}"


@pytest.fixture(scope="module")
def lab(browser, tmp_path_factory):
    for package in ("jupyterlab", "ipykernel", "ipywidgets", "anywidget"):
        if not find_spec(package):
            if os.environ.get("THEANOGUARD_NEEDS_BROWSER"):
                pytest.fail(f"{package} is not installed, and THEANOGUARD_NEEDS_BROWSER is set")
            pytest.skip(f"{package} is not installed")
    home = tmp_path_factory.mktemp("lab")
    shutil.copytree(NOTEBOOKS, home / "notebooks")
    settings = home / "settings" / "@jupyterlab"
    # Cells that are not in view stay in the page; no news are asked for.
    for name, wish in {
        "notebook-extension/tracker": {"windowingMode": "none"},
        "apputils-extension/themes": {
            "adaptive-theme": True,
            "preferred-light-theme": "JupyterLab Light",
            "preferred-dark-theme": "JupyterLab Dark",
        },
        "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    }.items():
        path = settings / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(wish))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex()
    places = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")
    environment = {
        **os.environ,
        **{f"JUPYTER_{place}": str(home / place) for place in places},
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_TOKEN": token,
    }
    options = {
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": home / "notebooks",
        "ServerApp.allow_root": True,
        "ServerApp.open_browser": False,
    }
    log = home / "lab.log"
    with log.open("wb") as written:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *(f"--{k}={v}" for k, v in options.items())],
            cwd=home,
            env=environment,
            stdout=written,
            stderr=subprocess.STDOUT,
        )
    try:
        end = time.monotonic() + 120
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert server.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.3)
        yield Lab(home / "notebooks", f"http://127.0.0.1:{port}/lab", token)
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:  # it waits for its kernels, which end without it
            server.kill()
            server.wait()


def run_all(look, address):
    """Open a notebook and run its cells one by one, by Shift-Enter."""
    look.browser.get(address)
    look.one(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    # (the notebook is drawn anew while the page settles)
    look.wait(lambda: look.one(".jp-Notebook .jp-Cell").click() is None, "a first click")
    cells, prompts = len(look.all(".jp-Notebook .jp-Cell")), len(look.run(PROMPTS))
    for number in range(cells):
        look.wait(
            lambda n=number: look.run(ACTIVE) == n, f"cell {number} to be the one that is run"
        )
        look.shift_enter()
        if number == 1:
            # (JupyterLab forgets requests that it gets before the kernel is connected)
            look.wait(lambda: started(look), "the kernel")
    # (running the last one has added a cell)
    look.wait(lambda: all(map(str.isdigit, look.run(PROMPTS)[:prompts])), "all cells to end", 180)


def started(look):
    """Whether the first cell has been run; ask for it once more if that was forgotten."""
    first = look.run(PROMPTS)[0]
    if first:
        return first.isdigit()
    for agree in look.all(".jp-Dialog .jp-mod-accept"):  # (that the kernel is not ready)
        agree.click()
    prompt = look.all(".jp-Notebook .jp-CodeCell .jp-InputPrompt")[0]
    look.run("arguments[0].scrollIntoView({block: 'center'})", prompt)
    prompt.click()
    look.shift_enter()
    return False


ACTIVE = """
const cells = [...document.querySelectorAll(".jp-Notebook .jp-Cell")];
return cells.findIndex((cell) => cell.classList.contains("jp-mod-active"));
"""
PROMPTS = """
const prompts = document.querySelectorAll(".jp-Notebook .jp-CodeCell .jp-InputPrompt");
return [...prompts].map((prompt) => prompt.textContent.replace(/[^\\d*]/g, ""));
"""


def test_a_trip_in_jupyterlab(lab, look):
    from selenium.webdriver.common.keys import Keys

    look.errors()  # (those of other pages)
    run_all(look, lab.address("find_a_nan"))
    cells = len(look.all(".jp-Notebook .jp-Cell"))

    # The report, not a traceback.
    report = look.one(".tg-report")
    assert report.text.startswith("NaN in log: log(-0.284) at element [1]")
    assert "loss = -pt.log(p).sum()" in report.text
    assert report.value_of_css_property("word-break") == "normal"
    assert look.all(".jp-RenderedText[data-mime-type='application/vnd.jupyter.error']") == []
    assert not look.one("summary", "Traceback").find_element("xpath", "..").get_attribute("open")

    # The tree, opened at the bad node.
    look.one("summary", "Graph of call 2 of step").click()
    chosen = look.one(".tg-row[aria-selected=true]")
    assert "nan" in chosen.find_element("css selector", ".tg-event").get_attribute("title")
    look.row("x").find_element("css selector", ".tg-label").click()
    panel = look.one(".tg-panel")
    assert 'x = pt.dvector("x")' in panel.text
    # (2, or more where a cell had to be run once more)
    assert f"cell {look.run(PROMPTS)[1]}, line 5" in panel.text
    # Letters are the tree's, and no commands of the notebook's.
    look.keys("b", "a", "x", Keys.ARROW_UP)
    assert len(look.all(".jp-Notebook .jp-Cell")) == cells
    assert look.focused().get_attribute("role") == "row"

    assert look.everywhere("trip", look.all(".jp-Cell")[4]) == []

    # The stepper, by the mouse and by the keyboard.
    assert "before the first of" in look.one(".tg-step p").text
    look.step(1.0)
    table = look.one(".tg-step table")
    assert "wrote" in look.one("div.tg-step:has(table)", "Step 3,").text
    assert table.find_elements("css selector", ".tg-wrong")
    assert look.all(".tg-timeline .tg-wrong-step")
    assert look.focused().get_attribute("role") == "slider"
    look.keys(Keys.HOME)
    assert "loss = -pt.log(p).sum()" in look.one("div.tg-step:has(table)", "Step 1,").text
    assert look.focused().get_attribute("aria-valuetext").startswith("step 1 of")
    look.keys(Keys.ARROW_RIGHT)
    look.one("div.tg-step:has(table)", "Step 2,")
    look.keys(Keys.TAB)
    assert look.focused().text == "Back"
    look.keys(Keys.SPACE)
    look.one("div.tg-step:has(table)", "Step 1,")
    assert look.all(".tg-step svg rect")
    cell = look.all(".jp-Cell")[7]
    assert look.everywhere("stepper", cell) == []
    for scheme in ("light", "dark"):
        look.prefer(scheme)
        look.wait(lambda s=scheme: look.is_theme(s), f"the {scheme} theme")
        look.check_accessible(".jp-OutputArea-output:has(.tg-timeline)")
    look.prefer("")
    assert look.errors() == []

    # Without its kernel, the notebook shows the stepper's last step: after a restart, when it is
    # opened again, and as HTML.
    cell.find_element("css selector", ".jp-InputPrompt").click()
    look.keys("0", "0")
    look.one(".jp-Dialog .jp-mod-accept").click()
    assert_is_static(look, ".jupyter-widgets-disconnected")
    look.chord(Keys.CONTROL, "s")
    notebook = lab.folder / "find_a_nan.ipynb"
    look.wait(lambda: "tg-kept" in notebook.read_text(encoding="utf-8"), "the saved notebook")
    look.browser.get(lab.address("find_a_nan"))
    look.one(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    assert_is_static(look, ".jupyter-widgets")
    look.screenshot("restarted", look.all(".jp-Cell")[7])
    look.errors()
    page = exported(notebook)
    look.browser.get(page.as_uri())
    assert_is_static(look)
    look.screenshot("exported", look.all(".jp-Cell")[7])


def assert_is_static(look, hidden=None):
    """What the stepper's cell shows is its last step, and nothing on a widget."""
    if hidden is not None:
        look.wait(lambda: look.all(hidden), hidden)
    text = look.wait(lambda: look.all(".jp-Cell")[7].text, "the cell of the stepper")
    assert "Step 1," in text
    assert "wrote" in text
    assert not any(word in text for word in ("StepView", "model not found", "Next bad", "Error"))


def exported(notebook):
    """Return the page that nbconvert writes of a notebook."""
    command = [sys.executable, "-m", "nbconvert", "--to", "html", str(notebook)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return notebook.with_suffix(".html")


def test_the_picture_in_jupyterlab(lab, look):
    look.errors()  # (those of other pages)
    run_all(look, lab.address("look_into_a_graph"))
    assert len(look.all(".tg-tree [role=treegrid]")) == 3  # (of a function: written and compiled)
    before, after = look.wait(lambda: look.all(".tg-picture:has(.tg-stage)"), "both pictures")
    dot = look.one(".tg-picture:last-of-type .tg-box", "Dot")
    look.run("arguments[0].scrollIntoView({block: 'center'})", dot)
    dot.click()
    assert "hidden = pt.tanh(pt.dot(x, w))" in after.find_element("css selector", ".tg-panel").text
    look.wait(
        lambda: before.find_elements("css selector", ".tg-linked"), "what the node was before"
    )
    assert look.everywhere("picture", look.one(".tg-pictures")) == []
    assert look.errors() == []
