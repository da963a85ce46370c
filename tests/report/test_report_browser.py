"""The page in a real browser: on a phone, without a mouse, without a script, in the dark."""

import shutil
import time

import pytest

pytest.importorskip("selenium", reason="selenium is not installed")

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from latensor.report import write_report

from .pages import full_page, hostile_page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None,
    reason="chromium and chromedriver are not installed (Debian: chromium, chromium-driver)",
)
COUNT = 12


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    return {
        "full": write_report(full_page(COUNT), folder / "full.html"),
        "large": write_report(full_page(100), folder / "large.html"),
        "hostile": write_report(
            hostile_page("<img src=x onerror=document.title='taken'>" + "w" * 3000),
            folder / "hostile.html",
        ),
    }


@pytest.fixture(scope="module")
def driver():
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def visit(driver, pages):
    """Opens a page anew at some width; afterwards the browser is as it was."""

    def visit(name="full", width=1280, height=800, fragment="", script=True, **media):
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not script})
        features = [{"name": n.replace("_", "-"), "value": v} for n, v in media.items()]
        # Nothing waits for an animation.
        features.append({"name": "prefers-reduced-motion", "value": "reduce"})
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": features})
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        driver.get("about:blank")
        driver.get_log("browser")
        driver.get_log("performance")
        driver.get(pages[name].as_uri() + fragment)
        return driver

    yield visit
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def shown(driver, query):
    return [e for e in driver.find_elements(By.CSS_SELECTOR, query) if e.is_displayed()]


def order(driver):
    script = (
        "return [...document.querySelectorAll('.cards .card:not([hidden])')]"
        ".map((card) => +card.dataset.topic)"
    )
    return driver.execute_script(script)


def address(driver):
    return driver.execute_script("return location.hash")


def selected(driver):
    """What the panel, the map and the list say is selected."""
    heading = driver.find_element(By.CSS_SELECTOR, "#selected h3").text
    circles = shown(driver, ".spot.selected")
    cards = driver.find_elements(By.CSS_SELECTOR, ".cards .card.selected")
    return (
        heading.split()[1],
        [c.get_attribute("data-topic") for c in circles],
        [c.get_attribute("data-topic") for c in cards],
    )


def until(condition):
    """The first true answer within five seconds, or the last one."""
    for _ in range(50):
        answer = condition()
        if answer:
            break
        time.sleep(0.1)
    return answer


def active(driver):
    return driver.switch_to.active_element


def press(driver, *keys):
    active(driver).send_keys(*keys)


@pytest.mark.parametrize("name", ["full", "large", "hostile"])
def test_no_complaints_and_nothing_loaded(visit, name):
    driver = visit(name)
    assert driver.get_log("browser") == []
    assert driver.title.endswith(": topics")
    urls = [
        entry["message"].split('"url":"')[1].split('"')[0]
        for entry in driver.get_log("performance")
        if '"Network.requestWillBeSent"' in entry["message"]
    ]
    assert urls
    assert all(url.startswith(("file:", "data:", "about:")) for url in urls)


@pytest.mark.parametrize("width", [320, 700, 1280])
@pytest.mark.parametrize("name", ["full", "large", "hostile"])
def test_no_sideways_scrolling(visit, name, width):
    driver = visit(name, width)
    driver.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    driver.execute_script("document.getElementById('words-typical').click()")
    size = driver.execute_script(
        "return [document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth]"
    )
    assert max(size[:2]) <= size[2] == width


@pytest.mark.parametrize("width, kind", [(320, "narrow"), (1280, "wide")])
@pytest.mark.parametrize("name", ["large", "full"])
def test_one_map_is_shown_and_its_labels_can_be_read(visit, name, width, kind):
    driver = visit(name, width)
    (drawing,) = shown(driver, "svg.map")
    assert kind in drawing.get_attribute("class")
    script = """
      const box = (node) => {
        const r = node.getBoundingClientRect();
        return [r.left, r.top, r.right, r.bottom];
      };
      const all = (query) => [...arguments[0].querySelectorAll(query)].map(box);
      return [all(".name:not(.inside)"), all(".spot circle"), box(arguments[0])];
    """
    labels, circles, frame = driver.execute_script(script, drawing)
    assert len(circles) == (COUNT if name == "full" else 100)
    assert len(labels) > 2

    def overlap(a, b, slack=1.0):
        across = min(a[2], b[2]) - max(a[0], b[0])
        return across > slack and min(a[3], b[3]) - max(a[1], b[1]) > slack

    for i, label in enumerate(labels):
        assert label[3] - label[1] >= 9
        assert label[0] >= frame[0]
        assert label[2] <= frame[2]
        # Boxes of text reach beyond its letters above and below.
        assert not any(overlap(label, other, 5.0) for other in labels[:i])
    for i, circle in enumerate(circles):
        radius = (circle[2] - circle[0]) / 2
        assert radius >= 8
        for other in circles[:i]:
            dx = (circle[0] + circle[2] - other[0] - other[2]) / 2
            dy = (circle[1] + circle[3] - other[1] - other[3]) / 2
            assert (dx**2 + dy**2) ** 0.5 > 0.9 * (radius + (other[2] - other[0]) / 2)


def test_map_by_keyboard(visit):
    driver = visit()
    for _ in range(40):
        press(driver, Keys.TAB)
        if "spot" in (active(driver).get_attribute("class") or ""):
            break
    first = active(driver).get_attribute("data-topic")
    assert first == str(order(driver)[0])
    width = "return getComputedStyle(arguments[0].querySelector('circle')).strokeWidth"
    focused = driver.execute_script(width, active(driver))
    other = driver.find_element(By.CSS_SELECTOR, f'.spot:not([data-topic="{first}"])')
    assert focused != driver.execute_script(width, other)
    press(driver, Keys.ARROW_DOWN)
    second = active(driver).get_attribute("data-topic")
    if second == first:
        press(driver, Keys.ARROW_UP)
        second = active(driver).get_attribute("data-topic")
    assert second != first
    assert address(driver) == ""
    before = driver.execute_script("return scrollY")
    press(driver, Keys.ENTER)
    assert address(driver) == f"#topic-{second}"
    assert selected(driver) == (second, [second], [second])
    assert driver.execute_script("return scrollY") == before
    # The map is one stop: the next one lies behind it.
    press(driver, Keys.TAB)
    assert "spot" not in (active(driver).get_attribute("class") or "")


def test_card_by_keyboard_with_visible_focus(visit):
    driver = visit()
    target = driver.find_elements(By.CSS_SELECTOR, ".cards h3 a")[1]
    topic = target.get_attribute("hash").removeprefix("#topic-")
    driver.find_element(By.CSS_SELECTOR, "#words-probable").send_keys(Keys.TAB)
    for _ in range(80):
        if active(driver) == target:
            break
        outline = driver.execute_script(
            "return getComputedStyle(arguments[0]).outlineStyle", active(driver)
        )
        assert outline != "none"
        press(driver, Keys.TAB)
    assert active(driver) == target
    press(driver, Keys.ENTER)
    assert address(driver) == f"#topic-{topic}"
    assert until(lambda: selected(driver) == (topic, [topic], [topic]))


def test_the_first_stop_skips_to_the_topics(visit):
    driver = visit()
    press(driver, Keys.TAB)
    assert active(driver).text == "Skip to the topics"
    assert active(driver).rect["x"] >= 0
    press(driver, Keys.ENTER)
    assert address(driver) == "#topics"


def test_everything_that_takes_focus_has_a_name(visit):
    driver = visit()
    nodes = driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    nameless = [
        node["role"]["value"]
        for node in nodes
        if not node.get("ignored")
        and any(p["name"] == "focusable" for p in node.get("properties", ()))
        and not node.get("name", {}).get("value")
    ]
    assert nameless == []


def test_the_page_has_one_of_each_landmark(visit):
    """Only a header or footer of the body itself is a landmark, by the HTML standard."""
    driver = visit()
    for landmark in ("body > header", "main", "body > footer"):
        assert len(driver.find_elements(By.CSS_SELECTOR, landmark)) == 1, landmark


def test_filter_finds_topics_by_word(visit):
    driver = visit()
    page = full_page(COUNT)
    wanted = page.topics[4].words[1].text[:4]
    expected = {
        topic.number
        for topic in page.topics
        if any(wanted in w.text for w in (*topic.words, *topic.typical_words))
    }
    assert 0 < len(expected) < COUNT
    box = driver.find_element(By.ID, "find")
    box.send_keys(wanted.upper())
    assert set(order(driver)) == expected
    status = driver.find_element(By.ID, "list-status").text
    assert status.startswith(f"{len(expected)} of {COUNT} topics")
    bright = {e.get_attribute("data-topic") for e in shown(driver, ".spot:not(.dimmed)")}
    assert {int(number) for number in bright} == expected
    assert all(wanted in e.text for e in shown(driver, ".found"))
    box.send_keys("qqq")
    assert order(driver) == []
    assert driver.find_element(By.ID, "nothing-found").is_displayed()
    box.clear()
    box.send_keys("x", Keys.BACKSPACE)
    assert len(order(driver)) == COUNT


def test_many_topics_stand_on_the_page_once_they_are_asked_for(visit):
    driver = visit("large", width=400)
    assert len(shown(driver, ".cards .card")) == 24
    assert driver.execute_script("return document.documentElement.scrollHeight") < 30_000
    last = driver.find_elements(By.CSS_SELECTOR, ".cards .card")[-1].get_attribute("data-topic")
    driver.execute_script(f"location.hash = '#topic-{last}'")
    assert until(lambda: len(shown(driver, ".cards .card")) == 100)
    assert not shown(driver, "#show-all")
    driver = visit("large")
    driver.find_element(By.ID, "show-all").click()
    assert len(shown(driver, ".cards .card")) == 100
    for settings in ({"fragment": f"#topic-{last}"}, {"script": False}):
        driver = visit("large", **settings)
        assert until(lambda: len(shown(driver, ".cards .card")) == 100), settings  # noqa: B023
    assert not shown(visit("full"), "#show-all")


def test_sorting(visit):
    driver = visit()
    topics = full_page(COUNT).topics
    levels = ("good", "caution", "bad")
    keys = {
        "number": lambda t: t.number,
        "fraction": lambda t: -t.fraction,
        "coherence": lambda t: (-t.coherence, t.number),
        "trust": lambda t: (levels.index(t.trust), t.split_half_distance, t.number),
    }
    for name, key in keys.items():
        driver.find_element(By.CSS_SELECTOR, f"label[for=sort-{name}]").click()
        assert order(driver) == [t.number for t in sorted(topics, key=key)], name
    # The same by arrow keys, as radio buttons do.
    driver.find_element(By.ID, "sort-trust").send_keys(Keys.ARROW_LEFT)
    assert order(driver) == [t.number for t in sorted(topics, key=keys["fraction"])]


def test_links_select_and_the_back_button_undoes(visit):
    driver = visit(fragment="#topic-7")
    assert selected(driver) == ("7", ["7"], ["7"])
    card = driver.find_element(By.ID, "topic-7")
    top = "return arguments[0].getBoundingClientRect().top"
    assert until(lambda: 0 <= driver.execute_script(top, card) < 800)
    link = card.find_element(By.CSS_SELECTOR, ".near a")
    neighbour = link.get_attribute("hash").removeprefix("#topic-")
    link.send_keys(Keys.ENTER)
    assert until(lambda: selected(driver) == (neighbour, [neighbour], [neighbour]))
    driver.execute_script("document.querySelector('.map.wide [data-topic=\"3\"]').focus()")
    press(driver, Keys.ENTER)
    assert selected(driver) == ("3", ["3"], ["3"])
    driver.back()
    assert until(lambda: selected(driver) == (neighbour, [neighbour], [neighbour]))
    driver.back()
    assert until(lambda: selected(driver) == ("7", ["7"], ["7"]))
    driver.forward()
    assert until(lambda: selected(driver) == (neighbour, [neighbour], [neighbour]))


def test_a_link_to_a_filtered_topic_shows_it(visit):
    driver = visit()
    driver.find_element(By.ID, "find").send_keys("qqq")
    assert order(driver) == []
    driver.find_element(By.CSS_SELECTOR, ".largest a").send_keys(Keys.ENTER)
    assert until(lambda: len(order(driver)) == COUNT)
    assert driver.find_element(By.ID, "find").get_attribute("value") == ""


def test_clicking_the_map_and_turning_pages(visit):
    driver = visit(width=390)
    assert selected(driver)[0] == str(order(driver)[0])
    topic = order(driver)[3]
    circle = driver.find_element(By.CSS_SELECTOR, f'.map.narrow [data-topic="{topic}"] circle')
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", circle)
    circle.click()
    assert selected(driver) == (str(topic), [str(topic)], [str(topic)])
    status = driver.find_element(By.ID, "selected-status").get_attribute("textContent")
    assert status.startswith(f"Topic {topic} ")
    driver.execute_script("document.getElementById('next').click()")
    assert selected(driver)[0] == str(order(driver)[4])
    driver.execute_script("document.getElementById('previous').click()")
    assert selected(driver)[0] == str(topic)


def test_a_strange_address_does_no_harm(visit):
    driver = visit(fragment="#topic-999%22%5D")
    assert selected(driver)[2] == []
    assert driver.get_log("browser") == []


@pytest.mark.parametrize("width", [320, 1280])
def test_without_a_script_all_content_is_there(visit, width):
    driver = visit(width=width, script=False)
    assert "scripted" not in driver.find_element(By.TAG_NAME, "html").get_attribute("class")
    assert len(shown(driver, ".cards .card")) == COUNT
    assert shown(driver, ".script-only, .copy, #nothing-found") == []
    page = full_page(COUNT)
    card = driver.find_element(By.ID, "topic-4")
    assert all(word.text in card.text for word in page.topics[4].words)
    assert len(shown(driver, ".spot")) == COUNT
    assert len(shown(driver, "#evidence svg.chart")) == 3
    card.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    assert "some text" in card.text
    driver.find_element(By.ID, "words-typical").send_keys(Keys.SPACE)
    assert all(word.text in card.text for word in page.topics[4].typical_words)
    shown(driver, '.spot[data-topic="4"]')[0].send_keys(Keys.ENTER)
    assert driver.current_url.endswith("#topic-4")


def test_dark_and_light(visit):
    def brightness(query, what):
        script = f"return getComputedStyle(document.querySelector('{query}')).{what}"
        colour = driver.execute_script(script)
        return sum(int(part) for part in colour.split("(")[1].rstrip(")").split(",")[:3])

    driver = visit(prefers_color_scheme="dark")
    assert brightness("body", "backgroundColor") < 120 < 600 < brightness("body", "color")
    assert brightness(".card", "backgroundColor") < 150
    driver = visit(prefers_color_scheme="light")
    assert brightness("body", "color") < 150 < 600 < brightness("body", "backgroundColor")


def test_print(visit):
    driver = visit()
    details = driver.find_element(By.CSS_SELECTOR, ".cards details")
    # Printing opens what is folded, and folds it again.
    driver.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert details.get_property("open")
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert shown(driver, ".top, .controls, #selected, button, .map.narrow") == []
    assert len(shown(driver, ".cards .card, .map.wide")) == COUNT + 1
    driver.execute_script("dispatchEvent(new Event('afterprint'))")
    assert not details.get_property("open")
    assert len(driver.execute_cdp_cmd("Page.printToPDF", {})["data"]) > 10_000


def test_the_policy_stops_what_is_smuggled_in(visit):
    driver = visit("hostile")
    assert "taken" not in driver.title.split("<")[0]
    assert driver.find_elements(By.CSS_SELECTOR, "img") == []
    script = """
      const script = document.createElement("script");
      script.textContent = "document.title = 'taken'";
      document.body.append(script);
      document.body.insertAdjacentHTML("beforeend", "<i onclick=\\"document.title='taken'\\">");
      document.body.lastChild.click();
      return document.title;
    """
    assert driver.execute_script(script) != "taken"


def words_shown(driver, topic=0):
    return [e.text for e in shown(driver, f"#topic-{topic} .words bdi")]


def test_a_slider_ranks_words_by_relevance(visit):
    driver = visit()
    by_frequency = words_shown(driver)
    slider = driver.find_element(By.ID, "relevance")
    for _ in range(10):
        slider.send_keys(Keys.ARROW_LEFT)
    by_lift = words_shown(driver)
    assert len(by_lift) == len(by_frequency) == 10
    assert by_lift != by_frequency
    lifts = [
        float(e.text.strip("×").replace(",", "")) for e in shown(driver, "#topic-0 .words span")
    ]
    assert lifts == sorted(lifts, reverse=True)
    assert driver.find_element(By.ID, "relevance-value").text == "0: by lift"
    slider.send_keys(Keys.END)
    assert words_shown(driver) == by_frequency
    # The two choices that need no script lead back to their own lists.
    driver.find_element(By.CSS_SELECTOR, "label[for=words-typical]").click()
    assert driver.find_element(By.ID, "relevance-value").text.startswith("0.6")
    assert len(words_shown(driver)) == 10


def test_without_a_script_there_is_no_slider(visit):
    driver = visit(script=False)
    assert shown(driver, "#relevance") == []
    assert len(words_shown(driver)) == 10


@pytest.mark.parametrize("name", ["full", "large"])
@pytest.mark.parametrize("width", [400, 1400])
def test_figures_of_time_and_groups_fit(visit, name, width):
    driver = visit(name, width=width)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    figures = shown(driver, "#over-time .trends figure, #by-group .trends figure")
    assert len(figures) == 16
    sizes = driver.execute_script(
        "return [...document.querySelectorAll('.trends:not(details .trends) svg text')]"
        ".map(t => t.getBoundingClientRect().height)"
    )
    assert min(sizes) > 9
