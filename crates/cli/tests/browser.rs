//! The page in a real browser: after each action it shows the state of `/v1`, and the console stays silent.
//!
//! Everything is done by keyboard. The tests need Debian's `chromium` and `chromium-driver`.

mod common;

use common::browser::{Browser, ENTER, LIVE, RIGHT, get, open_demo, post, serve};
use common::{Agent, own_ip, wait_until_seen};
use serde_json::{Value, json};

/// The element of a node on the ring.
fn node(name: &str) -> String {
    format!(
        "[...document.querySelectorAll('.node')].find((node) => node.querySelector('.name').textContent === '{name}')"
    )
}

/// The texts of the steps that are done.
fn done(browser: &Browser) -> Vec<String> {
    let steps = browser.eval(
        "[...document.querySelectorAll('#steps [data-done=true] .text')].map((step) => step.textContent)",
    );
    steps.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Waits until all steps after an act are done, and gives their texts.
fn steps(browser: &Browser, act: &str) -> Vec<String> {
    browser.until(
        &format!("everything is repaired after: {act}"),
        &format!(
            "document.getElementById('happened-act').textContent.includes({}) \
             && document.querySelectorAll('#steps [data-done=false]').length === 0",
            json!(act)
        ),
    );
    done(browser)
}

/// The step that has this text in it.
fn step<'a>(steps: &'a [String], part: &str) -> &'a str {
    steps.iter().find(|step| step.contains(part)).unwrap_or_else(|| panic!("no {part:?} in {steps:#?}"))
}

/// The state of a member as `/v1` has it.
fn state_of(demo: &Agent, name: &str) -> Value {
    let members = get(demo, "/v1/members");
    let found = members.as_array().into_iter().flatten().find(|member| member["name"] == name).cloned();
    found.unwrap_or_default()["state"].take()
}

/// The state of the last mail of the first node to this one, as `/v1` has it.
fn mail_to(demo: &Agent, nid: &str) -> Value {
    let outbox = get(demo, "/v1/mesh/outbox");
    let lines = outbox.as_array().cloned().unwrap_or_default();
    lines
        .iter()
        .rfind(|line| line["to"].as_str().is_some_and(|to| to.starts_with(nid)))
        .cloned()
        .unwrap_or_default()["state"]
        .take()
}

fn section(demo: &Agent, name: &str) -> Value {
    get(demo, "/v1/page")["sections"][name].take()
}

fn name_of(demo: &Agent, id: &Value) -> String {
    let nodes = section(demo, "nodes");
    let found = nodes.as_array().into_iter().flatten().find(|node| node["id"] == *id).cloned();
    found.unwrap_or_default()["name"].as_str().unwrap_or_default().to_owned()
}

/// Goes to a node by Tab and arrows.
fn select(browser: &Browser, name: &str) {
    browser.eval("document.activeElement.blur()");
    browser.tab_to(".node");
    for _ in 0..20 {
        if browser.text("document.getElementById('inspector-title').textContent") == name {
            return;
        }
        browser.keys(RIGHT);
    }
    panic!("arrows do not reach {name}");
}

#[test]
fn a_killed_node_is_repaired_around_and_its_mail_arrives_when_it_is_revived() {
    let Some(browser) = Browser::start() else { return };
    let demo = open_demo(&browser, own_ip(), 6);
    assert_eq!(get(&demo, "/v1/members").as_array().map(Vec::len), Some(6));
    select(&browser, "lime");
    browser.until("its tables are shown", "document.querySelectorAll('.cells td.filled').length > 0");
    let lime = browser.text(&format!("{}.dataset.id", node("lime")));
    let tables = get(&demo, "/v1/page/nodes/lime");
    assert_eq!(
        browser.eval("document.querySelectorAll('.cells td.filled').length"),
        tables["tables"]["cells"].as_array().map(Vec::len).unwrap_or_default()
    );

    browser.keys("k");
    browser.until("lime is dead", &format!("{}.dataset.state === 'dead'", node("lime")));
    wait_until_seen("the API says so", || {
        let state = state_of(&demo, "lime");
        (state == "dead").then_some(()).ok_or(state)
    });
    // Mail from the first node to the dead one, by keyboard: the list of recipients takes letters.
    select(&browser, "red");
    browser.tab_to("#mail-to");
    browser.keys("lime");
    assert_eq!(browser.text("document.getElementById('mail-to').selectedOptions[0].text"), "lime");
    browser.press("l");
    browser.until("it is on its way", "document.getElementById('result').textContent.includes('to lime')");
    wait_until_seen("the API has the mail", || {
        let state = mail_to(&demo, &lime);
        (!state.is_null() && state != "delivered").then_some(()).ok_or(state)
    });
    let texts = steps(&browser, "lime was killed");
    step(&texts, "suspected");
    step(&texts, "dead for all 5 others");
    step(&texts, "all 5 nodes know the nodes beside them");
    for name in ["red", "orange", "amber", "green", "teal"] {
        let tables = get(&demo, &format!("/v1/page/nodes/{name}"))["tables"].take();
        assert!(tables["active"] == true && !tables.to_string().contains(&lime), "{name}: {tables}");
    }
    // The key that went to another owner has that owner for `/v1/route` too.
    let around = step(&texts, "a key of lime, reached ");
    let (key, owner) =
        (around.split(',').next().expect("a key"), around.split("reached ").nth(1).expect("an owner"));
    let found = get(&demo, &format!("/v1/route/{}", key.replace('/', "%2F")))["owner"].take();
    assert_eq!(owner, format!("{} instead", name_of(&demo, &found)), "{around}");
    step(&texts, "token");
    step(&texts, "to lime wait");
    browser.until("a waiting letter is drawn", "document.querySelectorAll('.ring .letter').length > 0");
    browser.until("mail waits in the list", "[...document.querySelectorAll('#mesh .rows li')].some((line) => line.textContent.includes('→ lime') && line.textContent.includes('waits'))");

    select(&browser, "lime");
    browser.keys("r");
    let texts = steps(&browser, "lime was started again");
    step(&texts, "alive for all");
    step(&texts, "in the ring again");
    step(&texts, "lime had the token again");
    step(&texts, "arrived");
    assert_eq!(state_of(&demo, "lime"), "alive");
    assert_eq!(browser.eval(&format!("{}.dataset.state", node("lime"))), "alive");
    wait_until_seen("the API says that it arrived", || {
        let state = mail_to(&demo, &lime);
        (state == "delivered").then_some(()).ok_or(state)
    });
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_cut_makes_two_owners_and_two_tokens_and_healing_makes_one_of_each() {
    let Some(browser) = Browser::start() else { return };
    let demo = open_demo(&browser, own_ip(), 6);
    browser.press("c");
    browser.until("the cut is drawn", "document.querySelectorAll('.ring .cut').length === 2");
    assert_eq!(get(&demo, "/v1/demo")["is_cut"], true);
    let texts = steps(&browser, "cut in two");
    step(&texts, "each side takes the other for dead");
    step(&texts, "two rings");
    let owners = step(&texts, "users/42 has two owners");
    let found = get(&demo, "/v1/route/users%2F42")["owner"].take();
    assert!(owners.contains(&name_of(&demo, &found)), "{owners}: one is that of the first node, {found}");
    step(&texts, "two tokens");
    browser.until(
        "the panel of route names both",
        "document.getElementById('route').textContent.includes('two owners of users/42')",
    );
    browser.until(
        "the panel of token has two",
        "document.querySelector('#token .figure').textContent.startsWith('2')",
    );
    let dead = get(&demo, "/v1/members");
    let dead = dead.as_array().into_iter().flatten().filter(|member| member["state"] == "dead").count();
    assert_eq!(dead, 3, "the first node takes the other side for dead");

    browser.press("h");
    browser.until("the cut is gone", "document.querySelectorAll('.ring .cut').length === 0");
    assert_eq!(get(&demo, "/v1/demo")["is_cut"], false);
    let texts = steps(&browser, "healed");
    step(&texts, "all 6 nodes are alive for all");
    step(&texts, "one ring");
    let owner = step(&texts, "users/42 has one owner: ");
    let found = get(&demo, "/v1/route/users%2F42")["owner"].take();
    assert!(owner.ends_with(&name_of(&demo, &found)), "{owner} {found}");
    step(&texts, "one token");
    let alive = get(&demo, "/v1/members");
    let alive = alive.as_array().into_iter().flatten().filter(|member| member["state"] == "alive").count();
    assert_eq!(alive, 6);
    // The graph of the page has the split and the merge that the graph of the API has.
    let merge = wait_until_seen("the API has a split and a merge", || {
        let graph = get(&demo, "/v1/token/graph")["edges"].take();
        let edges = graph.as_array().cloned().unwrap_or_default();
        let merge = edges.iter().rfind(|edge| edge["kind"] == "merge").cloned();
        let is_split = edges.iter().any(|edge| edge["kind"] == "restore");
        merge.filter(|_| is_split).ok_or(graph)
    });
    browser.until("the page draws it", "document.querySelectorAll('.genealogy .merge').length > 0 && document.querySelectorAll('.genealogy .step:not(.merge)').length > 0");
    let names = format!(
        "{}.every((id) => [...document.querySelectorAll('.genealogy text')].some((text) => text.textContent === id))",
        json!([merge["from"].to_string(), merge["to"].to_string()])
    );
    browser.until("it names both tokens", &names);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_token_that_dies_with_its_holder_is_restored() {
    let Some(browser) = Browser::start() else { return };
    let demo = open_demo(&browser, own_ip(), 6);
    // A turn may be over before the kill comes; then another node is killed in its turn.
    let restored = (0..4).any(|_| {
        browser.press("t");
        let texts = steps(&browser, "was killed");
        let is_restored = texts.iter().any(|step| step.contains("token was lost with"));
        browser.press("r");
        steps(&browser, "was started again");
        is_restored
    });
    assert!(restored, "no token was ever lost");
    let graph = get(&demo, "/v1/token/graph")["edges"].to_string();
    assert!(graph.contains("restore"), "{graph}");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_suspended_node_is_suspected_and_goes_on() {
    let Some(browser) = Browser::start() else { return };
    let demo = open_demo(&browser, own_ip(), 5);
    select(&browser, "amber");
    browser.keys("s");
    browser.until("it is shown as suspended", &format!("{}.dataset.suspended === 'true'", node("amber")));
    assert_eq!(get(&demo, "/v1/demo")["nodes"][2]["state"], "suspended");
    browser.until("it is suspected", "document.querySelector('#steps [data-done=true]') !== null");
    browser.keys("s");
    let texts = steps(&browser, "amber goes on");
    step(&texts, "alive for all");
    assert_eq!(state_of(&demo, "amber"), "alive");
    assert_eq!(get(&demo, "/v1/demo")["nodes"][2]["state"], "up");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn keys_and_messages_are_text_and_a_lost_connection_is_mended() {
    let Some(browser) = Browser::start() else { return };
    let ip = own_ip();
    let demo = open_demo(&browser, ip, 4);
    // Send: the page names the owner that `/v1/route` names.
    browser.press("m");
    browser.until("it is delivered", "document.getElementById('result').textContent.includes('reached')");
    let owner = get(&demo, "/v1/route/users%2F42")["owner"].take();
    let result = browser.text("document.getElementById('result').textContent");
    assert!(result.contains(&format!("reached {}", name_of(&demo, &owner))), "{result} {owner}");

    let evil = |what: &str| format!("<script>document.title=1</script><img src=x onerror=alert('{what}')>");
    browser.tab_to("#send-key");
    browser.eval("document.getElementById('send-key').select()");
    browser.keys(&format!("{}{ENTER}", evil("key")));
    let message = json!({ "from": "red", "key": "plain", "text": evil("message") });
    assert_eq!(post(&demo, "/v1/demo/send", &message), 200);
    assert_eq!(
        post(&demo, "/v1/demo/send", &json!({ "from": "red", "to": "lime", "text": evil("mail") })),
        200
    );
    for what in ["key", "message", "mail"] {
        let shown = format!("document.getElementById('lines').textContent.includes({})", json!(evil(what)));
        browser.until("the log shows it as text", &shown);
    }
    assert_eq!(browser.eval("document.querySelectorAll('main script, main img').length"), 0);
    assert_eq!(browser.complaints(), Vec::<String>::new());

    // The load would hide what is rare: its messages are seen when somebody asks for them.
    let seen = "[...document.querySelectorAll('#lines li')].filter((line) => !line.hidden && line.textContent.includes('plain: ')).length";
    assert_eq!(browser.eval(seen), 0, "traffic is hidden at first");
    browser.tab_to("#filter-traffic input");
    browser.keys(" ");
    browser.until("traffic is shown", &format!("{seen} === 1"));

    // The last events are there for a page that is opened later.
    browser.goto(&demo);
    browser.until(
        "it has them",
        &format!("document.getElementById('lines').textContent.includes({})", json!(evil("mail"))),
    );

    // A lost connection is shown and mended.
    drop(demo);
    browser.until("the loss is shown", "document.getElementById('connection').dataset.state === 'lost'");
    let _demo = serve(ip, &["demo", "--nodes", "3"]);
    browser.until("it is connected again", LIVE);
    browser
        .until("three nodes are alive", "document.querySelectorAll('.node[data-state=alive]').length === 3");
    let complaints = browser.complaints();
    assert!(
        complaints.iter().all(|line| line.contains("net::ERR_") || line.contains("Failed to load resource")),
        "{complaints:#?}"
    );
}
