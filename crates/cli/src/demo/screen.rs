//! The view of the demo in a terminal: the ring, the members, the token, the mail, and the last events.

use std::collections::VecDeque;
use std::f64::consts::TAU;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use ratatui::DefaultTerminal;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::canvas::{Canvas, Circle};
use ratatui::widgets::{Block, Clear, Paragraph};
use serde_json::Value;
use tokio::sync::mpsc;

use super::cluster::Cluster;
use super::view::sections;
use crate::agent::http::ApiError;
use crate::cli::plain;
use crate::page::Sections;

/// The most lines of events that are kept.
const LINES_MAX: usize = 200;
/// The radius of the ring, and of everything around it.
const RADIUS: f64 = 80.0;
const AROUND: f64 = 112.0;

const HELP: &str = "← →  select a node       k  kill it         r  revive it\n\
                    s    suspend or resume   c  cut the ring    h  heal\n\
                    m    message to a key    l  mail to it      q  quit\n\
                    t    kill the next node that has its turn";

const KEYS: &str = " ←→ select  k kill  t kill in turn  r revive  s suspend  c cut  h heal  m message  l mail  ? help  q quit ";

/// The terminal while the demo runs. Dropped, it is as it was before.
pub(crate) struct Screen {
    terminal: DefaultTerminal,
    keys: mpsc::UnboundedReceiver<KeyEvent>,
    page: String,
    begin: Instant,
    lines: VecDeque<String>,
    selected: usize,
    is_help: bool,
    messages: u64,
}

/// The wish of the person at the keys.
pub(crate) enum Wish {
    Quit,
    Nothing,
}

impl Screen {
    /// Takes the terminal; times are counted from `begin`.
    pub(crate) fn open(page: String, begin: Instant) -> io::Result<Self> {
        let terminal = ratatui::try_init()?;
        let (sender, keys) = mpsc::unbounded_channel();
        // Reading keys waits for ever; the thread ends with the process.
        std::thread::spawn(move || {
            while let Ok(event) = event::read() {
                if let Event::Key(key) = event
                    && key.kind == KeyEventKind::Press
                    && sender.send(key).is_err()
                {
                    return;
                }
            }
        });
        let lines = VecDeque::new();
        Ok(Self { terminal, keys, page, begin, lines, selected: 0, is_help: false, messages: 0 })
    }

    /// The next key press.
    pub(crate) async fn key(&mut self) -> Option<KeyEvent> {
        self.keys.recv().await
    }

    /// Handles a key. The keys and the view go on while something takes its time.
    pub(crate) fn press(&mut self, key: KeyEvent, cluster: &Arc<Cluster>) -> Wish {
        let count = cluster.members.len();
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Wish::Quit,
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Esc if self.is_help => self.is_help = false,
            KeyCode::Esc => return Wish::Quit,
            KeyCode::Right | KeyCode::Down | KeyCode::Tab => self.selected = (self.selected + 1) % count,
            KeyCode::Left | KeyCode::Up | KeyCode::BackTab => {
                self.selected = (self.selected + count - 1) % count;
            }
            KeyCode::Char('?') => self.is_help = !self.is_help,
            KeyCode::Char(key) => {
                self.messages += u64::from(key == 'm');
                let name = cluster.members[self.selected].name.clone();
                tokio::spawn(act(Arc::clone(cluster), key, name, self.messages));
            }
            _ => {}
        }
        Wish::Nothing
    }

    /// Adds a line to the events.
    pub(crate) fn line(&mut self, line: &str) {
        let line = format!("{:6.1} s  {}", self.begin.elapsed().as_secs_f64(), plain(line));
        self.lines.push_front(line);
        self.lines.truncate(LINES_MAX);
    }

    /// Draws the nodes as they are now.
    pub(crate) async fn draw(&mut self, cluster: &Arc<Cluster>) -> io::Result<()> {
        let (sections, messages) = (sections(cluster).await, cluster.messages());
        let Self { lines, selected, page, is_help, .. } = self;
        let scene = Scene { sections, messages, lines, selected: *selected, page, is_help: *is_help };
        self.terminal.draw(|frame| scene.render(frame))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Performs the action of a key on a node; an error becomes a line of the events.
async fn act(cluster: Arc<Cluster>, key: char, name: String, messages: u64) {
    let done = match key {
        'k' => cluster.kill(&name).await,
        't' => cluster.kill_in_turn().await.map(drop),
        'r' => cluster.revive(&name).await,
        's' => {
            let is_awake = cluster.member(&name).is_ok_and(|member| member.awake().is_some());
            cluster.suspend(&name, is_awake)
        }
        'c' => cluster.cut(&[]),
        'h' => {
            cluster.heal();
            Ok(())
        }
        'm' => {
            let key = format!("terminal/{messages}");
            let sent = cluster.send(&name, &key, "hello from the terminal").await;
            sent.map(|answer| cluster.note(format!("{key} from {name} took {} hops", hops(&answer))))
        }
        'l' => mail_to(&cluster, &name).await,
        _ => Ok(()),
    };
    if let Err(error) = done {
        cluster.note(error.sentence());
    }
}

/// Mail to a node from the first that can send some.
async fn mail_to(cluster: &Cluster, name: &str) -> Result<(), ApiError> {
    let from = cluster.members.iter().find(|member| member.awake().is_some() && member.name != name);
    let Some(from) = from else { return Ok(()) };
    cluster.mail(&from.name, name, "mail from the terminal").await?;
    cluster.note(format!("{} sent mail to {name}", from.name));
    Ok(())
}

fn hops(answer: &Value) -> usize {
    answer["path"].as_array().map_or(0, |path| path.len().saturating_sub(1))
}

/// Everything that is drawn.
struct Scene<'a> {
    sections: Sections,
    messages: Vec<String>,
    lines: &'a VecDeque<String>,
    selected: usize,
    page: &'a str,
    is_help: bool,
}

impl Scene<'_> {
    fn render(&self, frame: &mut Frame<'_>) {
        let [top, bottom] =
            Layout::vertical([Constraint::Min(12), Constraint::Length(9)]).areas(frame.area());
        let [left, right] = Layout::horizontal([Constraint::Percentage(62), Constraint::Min(28)]).areas(top);
        draw_ring(frame, left, &self.sections, self.selected, self.page);
        draw_facts(frame, right, &self.sections, self.selected, &self.messages);
        let shown: Vec<Line<'_>> = self.lines.iter().map(|line| Line::from(line.as_str())).collect();
        let events = Block::bordered().title(" events ").title_bottom(KEYS);
        frame.render_widget(Paragraph::new(shown).block(events), bottom);
        if self.is_help {
            draw_help(frame);
        }
    }
}

fn nodes(sections: &Sections) -> &[Value] {
    sections.get("nodes").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The place of a node on the ring; the top is id 0, and ids grow clockwise.
fn place(node: &Value, radius: f64) -> (f64, f64) {
    let digits = node["id"].as_str().and_then(|id| id.get(..8)).unwrap_or("0");
    let turn = f64::from(u32::from_str_radix(digits, 16).unwrap_or(0)) / 2f64.powi(32);
    let (sin, cos) = (turn * TAU).sin_cos();
    (radius * sin, radius * cos)
}

fn look_of(node: &Value) -> (&'static str, Color) {
    if node["suspended"] == true {
        return ("suspended", Color::Magenta);
    }
    match (node["state"].as_str(), node["up"].as_bool()) {
        (Some("suspect"), _) => ("suspect", Color::Yellow),
        (Some("dead" | "left"), _) => ("dead", Color::Red),
        (_, Some(false)) => ("killed", Color::Red),
        _ => ("alive", Color::Green),
    }
}

fn draw_ring(frame: &mut Frame<'_>, area: Rect, sections: &Sections, selected: usize, page: &str) {
    let nodes = nodes(sections);
    let tokens = sections.get("token").and_then(|token| token["tokens"].as_array());
    let holders: Vec<&Value> = tokens.into_iter().flatten().map(|token| &token["holder"]).collect();
    let is_cut = sections.get("view").is_some_and(|view| view["is_cut"] == true);
    let note = if is_cut { "  ·  the network is cut" } else { "" };
    let title = format!(" annulus demo: {page}{note} ");
    let width = AROUND * 1.3;
    let (columns, rows) = (f64::from(area.width.max(4) - 2), f64::from(area.height.max(4) - 2));
    let column = 2.0 * width / columns;
    // Dots fill all cells, but the place of a text is counted in one cell less: stretched, both are in the same cell.
    let cell_of = |(x, y): (f64, f64)| {
        ((x + width) * columns / (columns - 1.0) - width, AROUND - (AROUND - y) * rows / (rows - 1.0))
    };
    let canvas = Canvas::default()
        .block(Block::bordered().title(title))
        .marker(Marker::Braille)
        .x_bounds([-width, width])
        .y_bounds([-AROUND, AROUND])
        .paint(|context| {
            context.draw(&Circle { x: 0.0, y: 0.0, radius: RADIUS, color: Color::DarkGray });
            context.layer();
            for (index, node) in nodes.iter().enumerate() {
                let (word, color) = look_of(node);
                let holds = holders.contains(&&node["id"]);
                if holds {
                    let (x, y) = cell_of(place(node, RADIUS - 14.0));
                    context.print(x, y, Span::from("◆").fg(Color::LightYellow));
                }
                let (x, y) = cell_of(place(node, RADIUS));
                context.print(x, y, Span::from(if word == "alive" { "●" } else { "✕" }).fg(color));
                let name = node["name"].as_str().unwrap_or_default();
                let (x, y) = cell_of(place(node, RADIUS + 12.0));
                let style = if index == selected {
                    Style::new().add_modifier(Modifier::REVERSED)
                } else {
                    Style::new().fg(color)
                };
                // A name on the left ends where one on the right begins.
                let x = if x < 0.0 { x - name.chars().count() as f64 * column } else { x };
                let side = if node["side"] == 1 { "'" } else { "" };
                context.print(x, y, Span::styled(format!("{}{side}", plain(name)), style));
            }
        });
    frame.render_widget(canvas, area);
}

fn draw_facts(frame: &mut Frame<'_>, area: Rect, sections: &Sections, selected: usize, messages: &[String]) {
    let nodes = nodes(sections);
    let count = |wanted: &str| nodes.iter().filter(|node| look_of(node).0 == wanted).count();
    let mut lines = vec![Line::from(format!(
        "{} alive, {} suspect, {} dead, {} suspended",
        count("alive"),
        count("suspect"),
        count("dead") + count("killed"),
        count("suspended")
    ))];
    if let Some(node) = nodes.get(selected) {
        let (word, color) = look_of(node);
        let name = plain(node["name"].as_str().unwrap_or_default()).into_owned();
        lines.push(Line::from(vec![format!("selected: {name} ").into(), Span::from(word).fg(color)]));
    }
    if sections.get("view").is_some_and(|view| view["is_cut"] == true) {
        lines.push(Line::from(Span::from("the network is cut: ' marks one side").fg(Color::Red)));
    }
    lines.push(Line::default());
    lines.extend(owner_line(sections, nodes));
    lines.extend(token_lines(sections, nodes));
    lines.push(Line::default());
    lines.extend(messages.iter().map(|message| Line::from(format!("message {}", plain(message)))));
    lines.push(Line::default());
    lines.extend(mail_lines(sections, nodes));
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" now ")), area);
}

fn name_of(nodes: &[Value], id: &Value) -> String {
    let node = nodes.iter().find(|node| node["id"] == *id);
    let name = node.and_then(|node| node["name"].as_str()).unwrap_or("nobody");
    plain(name).into_owned()
}

/// The owner of the key that is watched, or both owners while the network is cut.
fn owner_line(sections: &Sections, nodes: &[Value]) -> Option<Line<'static>> {
    let probe = &sections.get("route")?["probe"];
    let mut owners: Vec<String> =
        probe["owners"].as_array()?.iter().map(|owner| name_of(nodes, &owner["owner"])).collect();
    owners.dedup();
    Some(Line::from(format!("owner of {}: {}", probe["text"].as_str()?, owners.join(" and "))))
}

fn token_lines(sections: &Sections, nodes: &[Value]) -> Vec<Line<'static>> {
    let Some(token) = sections.get("token") else { return Vec::new() };
    let held = token["tokens"].as_array().into_iter().flatten().filter(|token| !token["holder"].is_null());
    let mut lines: Vec<Line<'static>> = held
        .map(|token| {
            Line::from(format!("token: {}, fence {}", name_of(nodes, &token["holder"]), token["fence"]))
        })
        .collect();
    let waiting: Vec<String> =
        token["waiting"].as_array().into_iter().flatten().map(|id| name_of(nodes, id)).collect();
    if !waiting.is_empty() {
        lines.push(Line::from(format!("waiting for a turn: {}", waiting.join(", "))));
    }
    lines
}

fn mail_lines(sections: &Sections, nodes: &[Value]) -> Vec<Line<'static>> {
    let mail = sections.get("mesh").and_then(|mesh| mesh["mail"].as_array());
    let shown = mail.into_iter().flatten().take(8).map(|line| {
        let (from, to) = (name_of(nodes, &line["from"]), name_of(nodes, &line["to"]));
        let state = line["state"].as_str().unwrap_or_default().replace('_', " ");
        Line::from(format!("mail {from} → {to}: {state}"))
    });
    shown.collect()
}

fn draw_help(frame: &mut Frame<'_>) {
    let [area] =
        Layout::vertical([Constraint::Length(6)]).flex(ratatui::layout::Flex::Center).areas(frame.area());
    let [area] = Layout::horizontal([Constraint::Length(62)]).flex(ratatui::layout::Flex::Center).areas(area);
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title(" keys ")), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;

    fn scene(lines: &VecDeque<String>) -> Scene<'_> {
        let node = |id: &str, name: &str, state: &str, side: u8| json!({ "id": id, "name": name, "state": state, "up": state == "alive", "side": side });
        let sections = Sections::from([
            ("view", json!({ "is_cut": true })),
            (
                "nodes",
                json!([
                    node("10000000", "red", "alive", 0),
                    node("90000000", "blue", "dead", 1),
                    node("c0000000", "a\u{1b}[31mb", "suspect", 1)
                ]),
            ),
            (
                "route",
                json!({ "probe": { "text": "users/42", "owners": [{ "owner": "10000000" }, { "owner": "90000000" }] } }),
            ),
            ("token", json!({ "tokens": [{ "holder": "10000000", "fence": 7 }], "waiting": ["90000000"] })),
            ("mesh", json!({ "mail": [{ "from": "10000000", "to": "90000000", "state": "under_way" }] })),
        ]);
        let messages = vec!["users/7: red → blue".to_owned()];
        Scene { sections, messages, lines, selected: 1, page: "http://127.0.0.1:7373", is_help: true }
    }

    fn drawn(width: u16, height: u16) -> String {
        let lines = VecDeque::from(["blue is dead".to_owned()]);
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| scene(&lines).render(frame)).unwrap();
        let cells = terminal.backend().buffer().content().iter();
        cells.map(ratatui::buffer::Cell::symbol).collect()
    }

    #[test]
    fn the_view_shows_ring_members_token_messages_mail_and_events() {
        let text = drawn(120, 36);
        for part in [
            "http://127.0.0.1:7373",
            "the network is cut",
            "1 alive, 1 suspect, 1 dead, 0 suspended",
            "selected: blue dead",
            "owner of users/42: red and blue",
            "token: red, fence 7",
            "waiting for a turn: blue",
            "message users/7: red → blue",
            "mail red → blue: under way",
            "blue is dead",
            "k kill",
            "suspend or resume",
            "◆",
        ] {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
        assert!(!text.contains('\u{1b}'), "a name cannot steer the terminal");
    }

    #[test]
    fn a_terminal_of_any_size_is_drawn_on() {
        for (width, height) in [(1, 1), (3, 2), (20, 5), (60, 12), (80, 24), (400, 100)] {
            drawn(width, height);
        }
    }
}
