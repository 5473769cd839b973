//! A real browser for tests of the page: Debian's chromium, steered over WebDriver.
//!
//! The few requests that the tests need are written here: a client crate would triple the build of the tests.

use std::net::{IpAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Agent, PATIENCE, annulus, pause, tell, wait_until};

/// Keys that have no character, as WebDriver writes them.
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const ESCAPE: &str = "\u{e00c}";
pub(crate) const RIGHT: &str = "\u{e014}";
pub(crate) const DOWN: &str = "\u{e015}";

/// The page is connected to its agent.
pub(crate) const LIVE: &str = "document.getElementById('connection').dataset.state === 'live'";

/// A browser with its driver; both end with the test.
pub(crate) struct Browser {
    driver: Child,
    http: ureq::Agent,
    session: String,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends with its session.
        let _ = self.http.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Browser {
    /// `None` if there is no browser here; where CI runs, there must be one.
    pub(crate) fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = port.expect("there is a free port").port();
        let mut driver = Command::new("chromedriver");
        driver.arg(format!("--port={port}")).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(driver) = driver.spawn() else {
            assert!(std::env::var_os("CI").is_none(), "CI needs chromium and chromium-driver");
            tell(format_args!("skipped: there is no chromedriver (apt install chromium chromium-driver)"));
            return None;
        };
        let http: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let mut browser = Self { driver, http, session: format!("http://127.0.0.1:{port}/session") };
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1400,1100",
        ];
        let wanted = json!({
            "browserName": "chrome",
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
            "goog:chromeOptions": {
                "args": arguments,
                "perfLoggingPrefs": { "enableNetwork": false, "enablePage": false, "traceCategories": "devtools.timeline" },
            },
        });
        let body = json!({ "capabilities": { "alwaysMatch": wanted } });
        let id = wait_until("the browser starts", || {
            browser.post("", &body)?["sessionId"].as_str().map(str::to_owned)
        });
        browser.session = format!("{}/{id}", browser.session);
        Some(browser)
    }

    /// A request to the driver; `None` without an answer.
    fn post(&self, path: &str, body: &Value) -> Option<Value> {
        let request =
            self.http.post(format!("{}{path}", self.session)).header("Content-Type", "application/json");
        let mut answer = request.send(body.to_string()).ok()?;
        // A recorded trace is large.
        let text = answer.body_mut().with_config().limit(1 << 30).read_to_string().ok()?;
        serde_json::from_str::<Value>(&text).ok().map(|mut answer| answer["value"].take())
    }

    pub(crate) fn goto(&self, agent: &Agent) {
        let url = format!("http://{}/", agent.http());
        self.post("/url", &json!({ "url": url })).expect("the browser lives");
    }

    /// The value of an expression in the page.
    pub(crate) fn eval(&self, expression: &str) -> Value {
        let body = json!({ "script": format!("return ({expression});"), "args": [] });
        self.post("/execute/sync", &body).expect("the browser lives")
    }

    /// The text that an expression in the page gives.
    pub(crate) fn text(&self, expression: &str) -> String {
        self.eval(expression).as_str().unwrap_or_default().to_owned()
    }

    /// A command of the DevTools protocol.
    pub(crate) fn devtools(&self, command: &str, params: &Value) -> Value {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": params }))
            .expect("the browser lives")
    }

    /// Gives the page a width and a height.
    pub(crate) fn resize(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Makes the system prefer "light" or "dark".
    pub(crate) fn prefer(&self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", &features);
    }

    /// Waits until an expression of the page holds.
    pub(crate) fn until(&self, what: &str, expression: &str) {
        let begin = Instant::now();
        loop {
            let value = self.eval(expression);
            if value == true {
                return;
            }
            if begin.elapsed() > PATIENCE {
                let text = self.text("document.body.innerText");
                panic!("waited too long until {what} ({value}): {text}");
            }
            pause(Duration::from_millis(50));
        }
    }

    /// Presses keys one after the other, as a person does; they go where the focus is.
    pub(crate) fn keys(&self, keys: &str) {
        let strokes: Vec<Value> = keys
            .chars()
            .flat_map(|key| {
                ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key.to_string() }))
            })
            .collect();
        let actions = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": strokes }] });
        self.post("/actions", &actions).expect("the browser lives");
    }

    /// Presses the key of a control, wherever the focus was.
    pub(crate) fn press(&self, key: &str) {
        self.eval("document.activeElement.blur()");
        self.keys(key);
    }

    /// Presses Tab until an element has the focus.
    pub(crate) fn tab_to(&self, selector: &str) {
        for _ in 0..80 {
            self.keys(TAB);
            if self.eval(&format!("document.activeElement.matches({})", json!(selector))) == true {
                return;
            }
        }
        panic!("the keyboard does not reach {selector}");
    }

    /// Errors and warnings of the console since the last call.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let is_bad = |line: &&Value| line["level"] == "SEVERE" || line["level"] == "WARNING";
        let lines = self.log("browser");
        lines.iter().filter(is_bad).map(|line| line["message"].to_string()).collect()
    }

    /// The lines of a log of the driver since the last call.
    pub(crate) fn log(&self, kind: &str) -> Vec<Value> {
        let log = self.post("/se/log", &json!({ "type": kind })).expect("the browser lives");
        log.as_array().cloned().unwrap_or_default()
    }
}

/// Starts a verb that serves a page on an address of its own.
pub(crate) fn serve(ip: IpAddr, args: &[&str]) -> Agent {
    let http = format!("{ip}:7373");
    let mut command = annulus(&[args, &["--http", &http]].concat());
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let agent = Agent::adopt(ip, child);
    wait_until("it serves", || std::net::TcpStream::connect(agent.http()).ok().map(drop));
    agent
}

/// The JSON at a path of the API.
pub(crate) fn get(agent: &Agent, path: &str) -> Value {
    serde_json::from_str(&agent.request("GET", path, &[], "").1).unwrap_or_default()
}

/// A request of a program, not of the page.
pub(crate) fn post(agent: &Agent, path: &str, body: &Value) -> u16 {
    agent.request("POST", path, &["Content-Type: application/json"], &body.to_string()).0
}

/// Opens the page of a demo with so many nodes and waits until all are alive in it.
pub(crate) fn open_demo(browser: &Browser, ip: IpAddr, nodes: usize) -> Agent {
    let demo = serve(ip, &["demo", "--nodes", &nodes.to_string()]);
    browser.goto(&demo);
    browser.until("the page is connected", LIVE);
    browser.until(
        "all nodes are alive",
        &format!("document.querySelectorAll('.node[data-state=alive][data-up=true]').length === {nodes}"),
    );
    demo
}
