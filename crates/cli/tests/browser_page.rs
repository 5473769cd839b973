//! The page for everybody: contrast, keyboard, screen readers, widths, the story, and the page of an agent.

mod common;

use base64::Engine as _;
use common::browser::{Browser, ENTER, ESCAPE, LIVE, TAB, get, open_demo, post};
use common::{Agent, own_ip, wait_until_seen};
use serde_json::{Value, json};

/// Each text of the page that is seen, with its contrast to what is behind it, as WCAG 2.1 defines it. Text that is large or
/// of a button that is switched off needs less; the least ratio counts.
const CONTRASTS: &str = r"(() => {
  const parse = (text) => {
    const numbers = (text.match(/[\d.]+/g) ?? []).map(Number);
    return { rgb: numbers.slice(0, 3), alpha: numbers[3] ?? 1 };
  };
  const mix = (front, back, alpha) => front.map((channel, index) => channel * alpha + back[index] * (1 - alpha));
  const backOf = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const back = parse(getComputedStyle(at).backgroundColor);
      if (back.alpha > 0) layers.push(back);
      if (back.alpha === 1) break;
    }
    return layers.reverse().reduce((below, layer) => mix(layer.rgb, below, layer.alpha), [255, 255, 255]);
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((value) => value / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)];
    return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    const element = walker.currentNode.parentElement;
    if (!text || !element.checkVisibility({ checkOpacity: true }) || element.closest('.unseen, .skip, option')) continue;
    const style = getComputedStyle(element);
    const isSvg = element instanceof SVGElement;
    let opacity = 1;
    for (let at = element; at; at = at.parentElement) opacity *= Number(getComputedStyle(at).opacity);
    const back = backOf(element);
    const front = parse(isSvg ? style.fill : style.color);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const least = isLarge ? 3 : 4.5;
    const got = ratio(mix(front.rgb, back, front.alpha * opacity), back);
    found.push({ text: text.slice(0, 40), of: element.getAttribute('class') ?? element.tagName, ratio: got, least });
  }
  return { count: found.length, bad: found.filter((item) => item.ratio < item.least) };
})()";

#[test]
fn every_text_passes_wcag_aa_in_both_schemes() {
    let Some(browser) = Browser::start() else { return };
    let demo = open_demo(&browser, own_ip(), 6);
    assert_eq!(post(&demo, "/v1/demo/nodes/lime/kill", &json!({})), 200);
    assert_eq!(post(&demo, "/v1/demo/nodes/teal/suspend", &json!({})), 200);
    assert_eq!(post(&demo, "/v1/demo/cut", &json!({})), 200);
    browser.until("a node is dead", "document.querySelector('.node[data-state=dead]') !== null");
    browser.until("the cut is drawn", "document.querySelector('.ring .cut-label') !== null");
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        let measured = browser.eval(CONTRASTS);
        assert!(measured["count"].as_u64() > Some(100), "{measured}");
        assert_eq!(measured["bad"], json!([]), "{scheme}");
    }
    // The measure can fail.
    browser.eval("document.getElementById('about').style.color = 'rgb(90, 90, 90)'");
    assert_eq!(browser.eval(CONTRASTS)["bad"][0]["of"], "about");
}

#[test]
fn nothing_is_cut_off_at_any_width() {
    let Some(browser) = Browser::start() else { return };
    let demo = open_demo(&browser, own_ip(), 12);
    assert_eq!(post(&demo, "/v1/demo/nodes/lime/kill", &json!({})), 200);
    browser.until("a node is dead", "document.querySelector('.node[data-state=dead]') !== null");
    for width in [400, 1000, 1440, 2000] {
        browser.resize(width, 900);
        let fits = browser.eval("document.documentElement.scrollWidth <= window.innerWidth");
        assert_eq!(fits, true, "nothing is wider than a window of {width} px");
        let outside = browser.eval(
            "(() => { const ring = document.getElementById('ring').getBoundingClientRect(); \
             return [...document.querySelectorAll('.node text')].filter((text) => text.textContent) \
               .filter((text) => { const box = text.getBoundingClientRect(); return box.left < ring.left - 1 || box.right > ring.right + 1 || box.top < ring.top - 1 || box.bottom > ring.bottom + 1; }) \
               .map((text) => text.textContent); })()",
        );
        assert_eq!(outside, json!([]), "names are inside the picture at {width} px");
        let overlaps = browser.eval(
            "(() => { const boxes = [...document.querySelectorAll('.node .name')].map((text) => [text.textContent, text.getBoundingClientRect()]); \
             return boxes.flatMap(([name, a], index) => boxes.slice(index + 1).filter(([, b]) => a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom).map(([other]) => `${name} ${other}`)); })()",
        );
        assert_eq!(overlaps, json!([]), "no name covers another at {width} px");
        let alone = browser.eval(
            "(() => { const tops = [...document.querySelectorAll('.service')].map((panel) => panel.offsetTop); \
             return tops.filter((top) => tops.filter((other) => other === top).length === 1).length; })()",
        );
        assert_eq!(alone, if width == 400 { 4 } else { 0 }, "no service is alone in a row at {width} px");
    }
}

#[test]
fn a_keyboard_reaches_every_control_and_sees_where_it_is() {
    let Some(browser) = Browser::start() else { return };
    let _demo = open_demo(&browser, own_ip(), 5);
    browser.press("n");
    // Chips of a node's tables are made anew when they change, so that an element is known by what it is called.
    let name = "((on) => on.id || on.dataset.key || on.getAttribute('aria-label') || on.textContent)";
    browser.eval("(document.activeElement.blur(), window.scrollTo(0, 0), window.reached = new Set())");
    for _ in 0..80 {
        browser.keys(TAB);
        let seen = browser.eval(&format!(
            "(() => {{ const on = document.activeElement; if (on === document.body) return true; window.reached.add({name}(on)); \
             const mark = on.matches('.node') ? getComputedStyle(on.querySelector('.halo')) : getComputedStyle(on); \
             return on.matches('.node') ? mark.strokeWidth === '4px' : mark.outlineStyle !== 'none' && parseFloat(mark.outlineWidth) >= 1; }})()",
        ));
        let on = browser.text("document.activeElement.outerHTML.slice(0, 120)");
        assert_eq!(seen, true, "the focus is seen on {on}");
    }
    let missing = browser.eval(&format!(
        "[...document.querySelectorAll('button, input, select, [tabindex=\"0\"]')] \
         .filter((on) => on.checkVisibility() && !on.disabled && on.tabIndex === 0 && !on.closest('dialog')) \
         .map({name}).filter((name) => !window.reached.has(name))",
    ));
    assert_eq!(missing, json!([]), "Tab reaches every control");
    assert!(browser.eval("window.reached.size").as_u64() > Some(15));
    // The help opens and closes by keys.
    browser.press("?");
    browser.until("the keys are shown", "document.getElementById('keys').open");
    let keys = browser.text("document.getElementById('keys').textContent");
    assert!(keys.contains("kill the selected node") && keys.contains("cut the network"), "{keys}");
    browser.keys(ESCAPE);
    browser.until("they are gone", "!document.getElementById('keys').open");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_screen_reader_finds_a_name_for_everything() {
    let Some(browser) = Browser::start() else { return };
    let demo = open_demo(&browser, own_ip(), 5);
    assert_eq!(post(&demo, "/v1/demo/nodes/lime/kill", &json!({})), 200);
    browser.until("a node is dead", "document.querySelector('.node[data-state=dead]') !== null");
    let tree = browser.devtools("Accessibility.getFullAXTree", &json!({}));
    let nodes: Vec<&Value> = tree["nodes"].as_array().expect("there is a tree").iter().collect();
    let role = |node: &Value| node["role"]["value"].as_str().unwrap_or_default().to_owned();
    let name = |node: &Value| node["name"]["value"].as_str().unwrap_or_default().to_owned();
    let live: Vec<&&Value> = nodes.iter().filter(|node| node["ignored"] != true).collect();
    for node in &live {
        let needs = [
            "button",
            "textbox",
            "combobox",
            "checkbox",
            "searchbox",
            "region",
            "image",
            "heading",
            "slider",
            "group",
        ];
        if needs.contains(&role(node).as_str()) {
            assert!(!name(node).is_empty(), "{} has no name: {node}", role(node));
        }
    }
    let has =
        |kind: &str, text: &str| live.iter().any(|node| role(node) == kind && name(node).contains(text));
    assert!(has("button", "lime, dead"), "a node tells its state");
    assert!(has("region", "What just happened") && has("region", "mesh") && has("heading", "token"));
    assert!(live.iter().any(|node| role(node) == "status"), "what happens is announced");
}

#[test]
fn a_story_plays_without_input_and_stops_at_a_touch() {
    let Some(browser) = Browser::start() else { return };
    let demo = open_demo(&browser, own_ip(), 6);
    let caption = "document.getElementById('caption').textContent";
    assert_eq!(browser.text(caption), "", "no story at first");
    browser.until("a story begins", &format!("{caption}.includes('story')"));
    browser.until("its node is suspected", &format!("{caption}.includes('is suspected')"));
    let states = get(&demo, "/v1/demo")["nodes"].take();
    assert_eq!(states.as_array().into_iter().flatten().filter(|node| node["state"] == "down").count(), 1);
    // A key that does nothing is a touch all the same.
    browser.keys("x");
    assert_eq!(browser.text(caption), "", "it stops at once");
    wait_until_seen("its node runs again", || {
        let states = get(&demo, "/v1/demo")["nodes"].take();
        let up = states.as_array().into_iter().flatten().filter(|node| node["state"] == "up").count();
        (up == 6).then_some(()).ok_or(states)
    });
    // An act of another client stops it too.
    browser.until("a story begins again", &format!("{caption}.includes('story')"));
    assert_eq!(post(&demo, "/v1/demo/cut", &json!({})), 200);
    browser.until("it stops", &format!("{caption} === ''"));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn an_agent_asks_for_its_token_and_shows_names_and_tags_as_text() {
    let Some(browser) = Browser::start() else { return };
    // The last character turns the direction of writing.
    let evil = "<script>alert(1)</script>\u{202e}";
    let shown = r"<script>alert(1)</script>\u{202e}";
    let tags = format!("node.tags=a=<i>{evil}");
    let agent = Agent::start(&["--name", evil, "--set", &tags, "--set", "http.token=secret"]);
    browser.goto(&agent);
    browser.until("it asks", "document.getElementById('access').open");
    browser.keys(&format!("wrong{ENTER}"));
    browser.until("a wrong token is refused", "document.getElementById('access-problem').textContent !== ''");
    browser.keys(&format!("secret{ENTER}"));
    browser.until("it is connected", LIVE);
    browser.until(
        "its name is text",
        &format!("document.getElementById('inspector-title').textContent === {}", json!(shown)),
    );
    browser.until(
        "its tags are text",
        &format!(
            "document.getElementById('inspector-body').textContent.includes({})",
            json!(format!("a=<i>{shown}"))
        ),
    );
    assert_eq!(browser.eval("document.querySelectorAll('main script, main i').length"), 0);
    assert_eq!(browser.eval("document.getElementById('controls').hidden"), true);
    assert_eq!(browser.eval("document.getElementById('happened').hidden"), true);
    assert_eq!(browser.eval("location.href.includes('secret') || JSON.stringify({ ...localStorage, ...sessionStorage }).includes('secret')"), false);
    // A first request without the token is refused, which the console notes.
    let complaints = browser.complaints();
    assert!(complaints.iter().all(|line| line.contains("401")), "{complaints:#?}");
}

/// Writes the pictures of the README into the directory that `PICTURES` names.
#[test]
#[ignore = "docs/pictures/make runs it"]
fn pictures_of_the_readme() {
    let browser = Browser::start().expect("there is a browser");
    let dir = std::path::PathBuf::from(std::env::var_os("PICTURES").expect("PICTURES names a directory"));
    let demo = open_demo(&browser, own_ip(), 12);
    browser.resize(1440, 900);
    browser.devtools("Emulation.setScrollbarsHidden", &json!({ "hidden": true }));
    let ring = dir.join("ring.svg");
    demo.stdout(&["ring", "--svg", ring.to_str().expect("a path is text")]);
    let lime = "[...document.querySelectorAll('.node')].find((node) => node.textContent.startsWith('lime'))";
    browser.eval(&format!("{lime}.dispatchEvent(new MouseEvent('click', {{ bubbles: true }}))"));
    browser.press("k");
    browser.until(
        "everything is repaired",
        "document.querySelectorAll('#steps [data-done=true]').length === 6 && document.querySelectorAll('.ring .letter').length > 1",
    );
    browser.press("n");
    browser.until(
        "the tables of its neighbour are shown",
        "document.querySelectorAll('.ring .leaf').length > 0",
    );
    let shot = browser.devtools("Page.captureScreenshot", &json!({ "format": "png" }))["data"].take();
    let png = base64::engine::general_purpose::STANDARD.decode(shot.as_str().expect("it is text"));
    std::fs::write(dir.join("page.png"), png.expect("it is base64")).expect("the directory can be written");
}
