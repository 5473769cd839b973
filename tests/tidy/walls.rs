//! Walls inside of machines: a machine is made of parts, and a part uses only the parts below it.
//!
//! `walls.txt` has a block per machine. The rules:
//! 1. Every module in the folder of a machine is listed in its block, and every folder with a `machine.rs` has a block.
//! 2. A part uses the modules in its line and the shared ones, and the lines have no cycle.
//! 3. `impl` of the machine's type stands only in the machine's own files.
//! 4. Fields of structs are private to their part, but for `Lower`, `Cx` and the modules and structs listed as data.
//! 5. A struct of a part has at most 12 fields.
//!
//! A block may have ceilings for machines that are not there yet. A ceiling may only fall.

use std::collections::{BTreeMap, BTreeSet};

use crate::Problem;
use crate::source::{SourceFile, mask, test_regions};

/// The table.
const TABLE: &str = include_str!("walls.txt");
const TABLE_PATH: &str = "tests/tidy/walls.txt";
const FOLDER: &str = "crates/core/src/";
const FIELDS_MAX: usize = 12;
/// Structs whose fields other modules may use: bundles of parts, and the argument of an upper part.
const BUNDLES: [&str; 3] = ["Lower", "Cx", "Parts"];

/// The block of one machine.
#[derive(Clone, Debug, Default)]
struct Block {
    folder: String,
    type_name: String,
    /// Where `impl` of the machine may stand; these use everything.
    own: BTreeSet<String>,
    /// Modules, or single items such as `machine::Out`, that every part may use.
    shared: BTreeSet<String>,
    /// The modules of `Lower` and `Cx`: these name all parts, and every part may use them.
    bundle: BTreeSet<String>,
    /// Modules and structs of plain data: their fields may be open.
    data: BTreeSet<String>,
    parts: BTreeMap<String, BTreeSet<String>>,
    ceilings: BTreeMap<String, usize>,
}

/// One finding, under the name of its rule.
type Finding = (&'static str, Problem);

pub(crate) fn check(files: &[SourceFile]) -> Vec<Problem> {
    let blocks = match parse(TABLE) {
        Ok(blocks) => blocks,
        Err(problem) => return vec![problem],
    };
    let mut problems = missing_blocks(files, &blocks);
    for block in &blocks {
        problems.extend(over_ceilings(block, findings(files, block)));
    }
    problems
}

/// A table of all machines, for issue and changelog.
pub(crate) fn report(files: &[SourceFile]) -> String {
    let mut lines = vec![
        "| machine | modules | files | code lines | fields | methods | open fields | `impl` outside | against the direction |"
            .to_owned(),
        "|---|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    for block in parse(TABLE).unwrap_or_default() {
        let sources = sources(files, &block);
        let modules: BTreeSet<&str> = sources.iter().map(|source| source.module.as_str()).collect();
        let code = code_lines(&sources);
        let fields = sources.iter().flat_map(structs);
        let own =
            fields.filter(|(_, name, _)| *name == block.type_name).map(|(.., fields)| fields.len()).max();
        let methods: usize = sources.iter().map(|source| methods(source, &block.type_name)).sum();
        let found = findings(files, &block);
        let count = |rule: &str| found.iter().filter(|(name, _)| *name == rule).count();
        lines.push(format!(
            "| {} | {} | {} | {code} | {} | {methods} | {} | {} | {} |",
            block.folder,
            modules.len(),
            sources.len(),
            own.unwrap_or(0),
            count("open"),
            count("impl"),
            count("use"),
        ));
    }
    let core = sources(files, &Block::default());
    lines.push(format!("| all of core | | {} | {} | | | | | |", core.len(), code_lines(&core)));
    lines.join("\n")
}

/// Lines with code: no comments, no tests, none that is empty.
fn code_lines(sources: &[Source]) -> usize {
    let lines = sources.iter().flat_map(|source| &source.lines);
    lines.filter(|(_, text)| !text.trim().is_empty()).count()
}

fn parse(table: &str) -> Result<Vec<Block>, Problem> {
    let mut blocks: Vec<Block> = Vec::new();
    for (number, line) in (1..).zip(table.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let wrong = |what: &str| Problem::new(TABLE_PATH, number, format!("{what}: {line}"));
        let (head, rest) = line.split_once(':').unwrap_or((line, ""));
        let names = || rest.split_whitespace().map(str::to_owned);
        let words: Vec<&str> = head.split_whitespace().collect();
        if let ["machine", folder, type_name] = words[..] {
            let (folder, type_name) = (folder.to_owned(), type_name.to_owned());
            blocks.push(Block { folder, type_name, ..Block::default() });
            continue;
        }
        let block = blocks.last_mut().ok_or_else(|| wrong("a line before the first machine"))?;
        match words[..] {
            ["own"] => block.own.extend(names()),
            ["shared"] => block.shared.extend(names()),
            ["bundle"] => block.bundle.extend(names()),
            ["data"] => block.data.extend(names()),
            ["part", part] => {
                block.parts.insert(part.to_owned(), names().collect());
            }
            ["ceiling", rule] => {
                let most = rest.trim().parse().map_err(|_| wrong("a ceiling is a number"))?;
                block.ceilings.insert(rule.to_owned(), most);
            }
            _ => return Err(wrong("neither machine, own, shared, bundle, data, part nor ceiling")),
        }
    }
    Ok(blocks)
}

fn missing_blocks(files: &[SourceFile], blocks: &[Block]) -> Vec<Problem> {
    let folders = files.iter().filter_map(|file| file.path.strip_prefix(FOLDER)?.strip_suffix("/machine.rs"));
    folders
        .filter(|folder| !folder.contains('/') && !blocks.iter().any(|block| block.folder == *folder))
        .map(|folder| Problem::new(TABLE_PATH, 1, format!("the machine in {folder} has no block")))
        .collect()
}

/// Drops findings up to the ceiling of their rule; beyond it all of them are shown.
fn over_ceilings(block: &Block, findings: Vec<Finding>) -> Vec<Problem> {
    let mut by_rule: BTreeMap<&str, Vec<Problem>> = BTreeMap::new();
    for (rule, problem) in findings {
        by_rule.entry(rule).or_default().push(problem);
    }
    let is_over = |rule: &str, count: usize| count > block.ceilings.get(rule).copied().unwrap_or(0);
    by_rule
        .into_iter()
        .filter(|(rule, found)| is_over(rule, found.len()))
        .flat_map(|(_, found)| found)
        .collect()
}

/// One file of a machine without comments, literals and tests.
struct Source {
    path: String,
    /// The module under the root of the machine.
    module: String,
    /// The path of this file's module: `["delivery", "forward"]`.
    modules: Vec<String>,
    lines: Vec<(usize, String)>,
}

fn sources(files: &[SourceFile], block: &Block) -> Vec<Source> {
    // The block without a folder is all of core.
    let prefix = format!("{FOLDER}{}{}", block.folder, if block.folder.is_empty() { "" } else { "/" });
    let inside =
        files.iter().filter(|file| file.is_rust() && !file.is_test() && file.path.starts_with(&prefix));
    inside
        .map(|file| {
            let below = file.path[prefix.len()..].trim_end_matches(".rs");
            let mut modules: Vec<String> = below.split('/').map(str::to_owned).collect();
            if modules.last().is_some_and(|last| last == "mod") {
                modules.pop();
            }
            let masked = mask(&file.text);
            let regions = test_regions(&masked);
            let is_code = |line: usize| !regions.iter().any(|region| region.contains(&line));
            let lines = (1..).zip(masked.lines()).filter(|(line, _)| is_code(*line));
            Source {
                path: file.path.clone(),
                module: modules.first().cloned().unwrap_or_default(),
                modules,
                lines: lines.map(|(line, text)| (line, text.to_owned())).collect(),
            }
        })
        .collect()
}

fn findings(files: &[SourceFile], block: &Block) -> Vec<Finding> {
    let sources = sources(files, block);
    let known: BTreeSet<&str> = sources.iter().map(|source| source.module.as_str()).collect();
    let mut found: Vec<Finding> = cycle(block).into_iter().map(|problem| ("cycle", problem)).collect();
    for source in sources.iter().filter(|source| !source.module.is_empty()) {
        let module = &source.module;
        let is_listed =
            [&block.own, &block.shared, &block.bundle, &block.data].iter().any(|list| list.contains(module));
        if !is_listed && !block.parts.contains_key(module) {
            let what = format!("{module} has no line in {TABLE_PATH}");
            found.push(("unlisted", Problem::new(&source.path, 1, what)));
        }
    }
    for source in &sources {
        let is_own = source.module.is_empty() || block.own.contains(&source.module);
        if !is_own {
            found.extend(foreign_impls(source, &block.type_name));
        }
        if !is_own && !block.bundle.contains(&source.module) {
            found.extend(uses(source, block, &known));
        }
        if !is_own && !block.shared.contains(&source.module) && !block.data.contains(&source.module) {
            found.extend(large_structs(source));
        }
        if !block.data.contains(&source.module) {
            found.extend(open_fields(source, block));
        }
    }
    found
}

/// A cycle in the lines of a block.
fn cycle(block: &Block) -> Option<Problem> {
    let mut left: BTreeSet<&String> = block.parts.keys().collect();
    loop {
        let free =
            left.iter().find(|part| block.parts[**part].iter().all(|used| !left.contains(used))).copied();
        match free {
            Some(part) => left.remove(part),
            None if left.is_empty() => return None,
            None => {
                let what = format!("parts of {} use each other in a circle: {left:?}", block.folder);
                return Some(Problem::new(TABLE_PATH, 1, what));
            }
        };
    }
}

/// Whether a line begins an `impl` of this type.
fn is_impl(line: &str, type_name: &str) -> bool {
    let Some(rest) = line.strip_prefix("impl") else { return false };
    let rest = rest.split_once('{').map_or(rest, |(head, _)| head);
    let subject = rest.rsplit(" for ").next().unwrap_or(rest).trim();
    let generic = subject.starts_with('<');
    let subject = if generic { subject.split_once("> ").map_or("", |(_, name)| name) } else { subject };
    subject.split(['<', ' ']).next() == Some(type_name)
}

/// The number of functions in the `impl`s of a type.
fn methods(source: &Source, type_name: &str) -> usize {
    let (mut is_inside, mut count) = (false, 0);
    for (_, text) in &source.lines {
        if text.starts_with("impl") || text.starts_with('}') {
            is_inside = is_impl(text, type_name);
        }
        let is_method = text.starts_with("    ") && !text.starts_with("     ") && text.contains("fn ");
        count += usize::from(is_inside && is_method);
    }
    count
}

fn foreign_impls(source: &Source, type_name: &str) -> Vec<Finding> {
    let lines = source.lines.iter().filter(|(_, text)| is_impl(text, type_name));
    lines
        .map(|(line, _)| {
            let what = format!("`impl {type_name}` outside of the machine's own files");
            ("impl", Problem::new(&source.path, *line, what))
        })
        .collect()
}

/// Modules that a part uses and may not.
fn uses(source: &Source, block: &Block, known: &BTreeSet<&str>) -> Vec<Finding> {
    let is_common =
        |module: &str| [&block.shared, &block.bundle, &block.data].iter().any(|list| list.contains(module));
    // A part needs the machine's type for its outbox; a constant has no methods to call.
    let is_harmless = |item: &str| {
        let name = item.rsplit("::").next().unwrap_or_default();
        name == block.type_name || name.chars().all(|c| c.is_uppercase() || c.is_numeric() || c == '_')
    };
    let may = |used: &str, item: &str| match block.parts.get(&source.module) {
        _ if used == source.module || is_common(used) || is_common(item) => true,
        _ if block.own.contains(used) && is_harmless(item) => true,
        Some(line) => line.contains(used),
        None => !is_common(&source.module),
    };
    let text: String = source.lines.iter().map(|(_, text)| format!("{text}\n")).collect();
    let numbers: Vec<usize> = source.lines.iter().map(|(line, _)| *line).collect();
    let mut found = Vec::new();
    for (at, item) in used_items(&text, &source.modules, &block.folder) {
        let used = item.split("::").next().unwrap_or_default();
        if known.contains(used) && !may(used, &item) {
            let line = numbers.get(text[..at].matches('\n').count()).copied().unwrap_or(1);
            let what = format!("{} uses {used}: not in its line of {TABLE_PATH}", source.module);
            found.push(("use", Problem::new(&source.path, line, what)));
        }
    }
    found
}

/// Items under the root of the machine that a text mentions by path, with where: `tables::Tables`.
fn used_items(text: &str, modules: &[String], folder: &str) -> Vec<(usize, String)> {
    let root = format!("crate::{folder}::");
    let up = "super::".repeat(modules.len().max(1));
    let mut found = Vec::new();
    for prefix in [root.as_str(), up.as_str()] {
        for (at, _) in text.match_indices(prefix) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let rest = &text[at + prefix.len()..];
            found.extend(expanded(rest).into_iter().map(|item| (at, item)));
        }
    }
    found
}

/// The paths of a `use` tree, cut after their first two names.
fn expanded(tree: &str) -> Vec<String> {
    let head: String = tree.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | ':')).collect();
    let Some(group) = tree[head.len()..].strip_prefix('{') else {
        return vec![head.split("::").take(2).collect::<Vec<_>>().join("::")];
    };
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                let inner = expanded(group[start..at].trim());
                found.extend(inner.iter().map(|path| format!("{head}{path}")));
                start = at + 1;
            }
            _ => {}
        }
        if c == '}' && start == at + 1 {
            break;
        }
    }
    found.iter().map(|path| path.split("::").take(2).collect::<Vec<_>>().join("::")).collect()
}

/// The number and the text of a line.
type Line = (usize, String);

/// The structs of a file: line, name, and the lines of their fields.
fn structs(source: &Source) -> Vec<(usize, String, Vec<Line>)> {
    let mut found: Vec<(usize, String, Vec<Line>)> = Vec::new();
    let mut is_inside = false;
    for (line, text) in &source.lines {
        let head = text
            .trim_start_matches("pub ")
            .trim_start_matches("pub(super) ")
            .trim_start_matches("pub(crate) ");
        let head = if head.starts_with("pub(in") {
            head.split_once(") ").map_or(head, |(_, rest)| rest)
        } else {
            head
        };
        if let Some(rest) = head.strip_prefix("struct ") {
            let name = rest.split(['<', ' ', '(', ';']).next().unwrap_or_default().to_owned();
            is_inside = text.ends_with('{');
            found.push((*line, name, Vec::new()));
        } else if text.starts_with('}') {
            is_inside = false;
        } else if is_inside && let Some((.., fields)) = found.last_mut() {
            let field =
                text.strip_prefix("    ").filter(|field| !field.starts_with([' ', '#', '/', ')', '}']));
            fields.extend(field.filter(|field| field.contains(':')).map(|field| (*line, field.to_owned())));
        }
    }
    found
}

fn large_structs(source: &Source) -> Vec<Finding> {
    let large = structs(source).into_iter().filter(|(_, _, fields)| fields.len() > FIELDS_MAX);
    large
        .map(|(line, name, fields)| {
            let what = format!(
                "`{name}` has {} fields, {FIELDS_MAX} is the ceiling: make parts of it",
                fields.len()
            );
            ("large", Problem::new(&source.path, line, what))
        })
        .collect()
}

/// Fields that other parts can reach. Inside of the folder of a part, `pub(super)` reaches no other part.
fn open_fields(source: &Source, block: &Block) -> Vec<Finding> {
    let is_inner = source.modules.len() > 1;
    let is_open = |field: &str| field.starts_with("pub(") && !(is_inner && field.starts_with("pub(super)"));
    // Two kinds are exempt: the machine, which only its own files can reach, and a bundle, whose fields are made to
    // be used.
    let is_machine = |name: &str| name == block.type_name && block.own.contains(&source.module);
    let is_bundle = |name: &str| BUNDLES.contains(&name) || block.bundle.contains(&source.module);
    let is_closed = |name: &str| !is_bundle(name) && !is_machine(name) && !block.data.contains(name);
    let closed = structs(source).into_iter().filter(|(_, name, _)| is_closed(name));
    let fields =
        closed.flat_map(|(_, name, fields)| fields.into_iter().map(move |field| (name.clone(), field)));
    fields
        .filter(|(_, (_, field))| is_open(field))
        .map(|(name, (line, _))| {
            let what = format!("`{name}` has an open field: give it a method");
            ("open", Problem::new(&source.path, line, what))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: &str = "machine disc Disc
own: machine
shared: message machine::Out
bundle: lower
data: record News
part tables:
part join: tables
";

    fn found(path: &str, text: &str) -> Vec<&'static str> {
        let mut files = vec![SourceFile::new(&format!("{FOLDER}disc/{path}"), text)];
        for other in ["machine", "message", "lower", "record", "tables", "join"] {
            let path = format!("{FOLDER}disc/{other}.rs");
            if files[0].path != path {
                files.push(SourceFile::new(&path, ""));
            }
        }
        let block = parse(BLOCK).unwrap().remove(0);
        findings(&files, &block).into_iter().map(|(rule, _)| rule).collect()
    }

    #[test]
    fn a_part_uses_only_the_parts_of_its_line() {
        assert_eq!(found("join.rs", "use super::tables::Tables;\nuse super::message::Message;"), [""; 0]);
        assert_eq!(found("tables.rs", "use super::join::Join;"), ["use"]);
        assert_eq!(found("tables.rs", "use super::machine::Out;"), [""; 0]);
        assert_eq!(found("tables.rs", "use super::machine::{Disc, LIMIT_MAX, Out};"), [""; 0]);
        assert_eq!(found("tables.rs", "use super::machine::{Out, apply};"), ["use"]);
        assert_eq!(found("lower.rs", "use super::join::Join;"), [""; 0]);
        assert_eq!(found("join.rs", "use super::lower::Cx;"), [""; 0]);
        assert_eq!(found("tables.rs", "use super::{message::Message, join::{Join, Stage}};"), ["use"; 2]);
        assert_eq!(found("tables.rs", "fn f() {\n    crate::disc::join::start();\n}"), ["use"]);
        assert_eq!(
            found("tables/next_hop.rs", "use super::super::join::Join;\nuse super::leaf::Leaf;"),
            ["use"]
        );
        assert_eq!(found("tables/mod.rs", "use super::join::Join;"), ["use"]);
        assert_eq!(
            found("tables.rs", "#[cfg(test)]\nmod tests {\n    use super::super::join::Join;\n}"),
            [""; 0]
        );
        assert_eq!(found("message.rs", "use super::join::Join;"), ["use"]);
        assert_eq!(found("machine.rs", "use super::join::Join;\nimpl Disc {\n}"), [""; 0]);
    }

    #[test]
    fn the_machine_is_implemented_in_its_own_files() {
        assert_eq!(found("join.rs", "impl Disc {\n}"), ["impl"]);
        assert_eq!(found("join.rs", "impl<A> Disc<A> {\n}"), ["impl"]);
        assert_eq!(found("join.rs", "impl Machine for Disc {\n}"), ["impl"]);
        assert_eq!(found("join.rs", "impl Disco {\n}\nimpl Join {\n}"), [""; 0]);
        let text = "impl Join {\n    fn a() {}\n}\nimpl Disc {\n    fn b() {\n        fn c() {}\n    }\n    pub fn d() {}\n}";
        let file = SourceFile::new(&format!("{FOLDER}disc/machine.rs"), text);
        let sources = sources(&[file], &parse(BLOCK).unwrap()[0]);
        assert_eq!(methods(&sources[0], "Disc"), 2);
    }

    #[test]
    fn fields_are_private_and_few() {
        let open = "struct Join {\n    pub(super) a: u8,\n    b: u8,\n}";
        assert_eq!(found("join.rs", open), ["open"]);
        assert_eq!(found("join/stage.rs", open), [""; 0], "it stays inside of its part");
        assert_eq!(found("join/mod.rs", open), ["open"]);
        assert_eq!(found("join/stage.rs", &open.replace("super", "in crate::disc")), ["open"]);
        assert_eq!(found("record.rs", open), [""; 0]);
        assert_eq!(found("join.rs", &open.replace("Join", "News")), [""; 0]);
        assert_eq!(found("machine.rs", &open.replace("Join", "Lower")), [""; 0]);
        let fields = |count: usize| format!("struct Join {{\n{}}}\n", "    a: u8,\n".repeat(count));
        assert_eq!(found("join.rs", &fields(12)), [""; 0]);
        assert_eq!(found("join.rs", &fields(13)), ["large"]);
        assert_eq!(found("message.rs", &fields(13)), [""; 0]);
    }

    #[test]
    fn every_module_and_every_machine_has_its_line() {
        assert_eq!(found("gossip.rs", ""), ["unlisted"]);
        let blocks = parse(BLOCK).unwrap();
        let machine = |folder: &str| SourceFile::new(&format!("{FOLDER}{folder}/machine.rs"), "");
        assert_eq!(missing_blocks(&[machine("disc")], &blocks).len(), 0);
        assert_eq!(missing_blocks(&[machine("cube")], &blocks).len(), 1);
    }

    #[test]
    fn lines_have_no_cycle_and_ceilings_hold() {
        let block = parse("machine a A\npart x: y\npart y: z\npart z: x\n").unwrap().remove(0);
        assert!(cycle(&block).is_some());
        let block = parse("machine a A\nceiling open: 1\n").unwrap().remove(0);
        let problem = || ("open", Problem::new("a.rs", 1, "x"));
        assert_eq!(over_ceilings(&block, vec![problem()]).len(), 0);
        assert_eq!(over_ceilings(&block, vec![problem(), problem()]).len(), 2);
        assert!(parse("machine a A\nwall x\n").is_err() && parse("ceiling open: 1").is_err());
    }
}
