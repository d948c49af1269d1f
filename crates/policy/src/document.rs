//! A file as a tree of values, each with its place: one shape for YAML, TOML and JSON, bounded in depth and size.

use std::collections::HashMap;
use std::rc::Rc;

use granit_parser::{Event, Parser, ScalarStyle};

use crate::mistake::{Fault, Mistakes, Path, Place, Step, shortened};
use crate::parse::limits;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    /// A number that is no 64-bit integer, or a date.
    Other,
    Text(String),
    List(Vec<Rc<Node>>),
    /// Keys in their order, each with its place.
    Map(Vec<(String, Place, Rc<Node>)>),
}

impl Value {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Int(_) => "a number",
            Self::Other => "a number or date that is no plain integer",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

impl Node {
    /// The place of what a path leads to, or of the last step that is there.
    pub(crate) fn place_of(&self, path: &Path, alias: impl Fn(&str) -> String) -> Place {
        let (mut node, mut place) = (self, self.place);
        for step in &path.0 {
            let next = match (step, &node.value) {
                (Step::Key(key), Value::Map(entries)) => {
                    let found =
                        entries.iter().find(|(name, ..)| alias(name) == *key || shortened(name) == *key);
                    found.map(|(_, at, node)| (*at, node))
                }
                (Step::Index(index), Value::List(items)) => items.get(*index).map(|node| (node.place, node)),
                _ => None,
            };
            let Some((at, inner)) = next else { break };
            (place, node) = (at, inner);
        }
        place
    }
}

/// The language of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// YAML 1.2, one document, no tags.
    Yaml,
    /// TOML 1.0.
    Toml,
    /// JSON.
    Json,
}

/// Reads a file's text.
pub(crate) fn read(text: &str, format: Format) -> Result<Node, Mistakes> {
    match format {
        Format::Yaml => Builder::default().yaml(text),
        Format::Json => crate::document::json::read(text),
        Format::Toml => toml_tree(text),
    }
}

pub(crate) fn one(fault: Fault, message: impl Into<String>, place: Option<Place>) -> Mistakes {
    let mut mistakes = Mistakes::default();
    mistakes.add_at(&Path::default(), fault, message, place);
    mistakes
}

#[derive(Default)]
struct Builder {
    anchors: HashMap<usize, (Rc<Node>, usize)>,
    values: usize,
}

/// A collection that is still open.
enum Open {
    List(Vec<Rc<Node>>, Place, usize, usize),
    Map(Vec<(String, Place, Rc<Node>)>, Option<(String, Place)>, Place, usize, usize),
}

impl Builder {
    fn yaml(mut self, text: &str) -> Result<Node, Mistakes> {
        let mut open: Vec<Open> = Vec::new();
        let mut root: Option<Rc<Node>> = None;
        for next in Parser::new_from_str(text) {
            let (event, span) = next.map_err(|error| {
                let place = Place { line: error.marker().line(), column: error.marker().col() + 1 };
                one(Fault::Syntax, error.info(), Some(place))
            })?;
            let place = Place { line: span.start.line(), column: span.start.col() + 1 };
            let fail = |fault, message: &str| Err(one(fault, message, Some(place)));
            let tagged = matches!(
                &event,
                Event::Scalar(.., Some(_))
                    | Event::SequenceStart(.., Some(_))
                    | Event::MappingStart(.., Some(_))
            );
            if tagged {
                return fail(Fault::Syntax, "tags are not read here; leave the tag out");
            }
            if open.len() > limits::FILE_DEPTH {
                return fail(Fault::Limit, "nested too deeply");
            }
            let (node, anchor) = match event {
                Event::DocumentStart(..) if root.is_some() => {
                    return fail(Fault::Syntax, "a file holds one document");
                }
                Event::Alias(id) | Event::Scalar(_, _, id, _) if matches!(event, Event::Alias(_)) => {
                    let Some((node, size)) = self.anchors.get(&id).cloned() else {
                        return fail(Fault::Syntax, "this alias has no anchor, or stands within it");
                    };
                    self.values += size;
                    (node, 0)
                }
                Event::Scalar(text, style, anchor, _) => {
                    (Rc::new(Node { place, value: scalar(&text, style) }), anchor)
                }
                Event::SequenceStart(_, anchor, _) => {
                    open.push(Open::List(Vec::new(), place, anchor, self.values));
                    continue;
                }
                Event::MappingStart(_, anchor, _) => {
                    open.push(Open::Map(Vec::new(), None, place, anchor, self.values));
                    continue;
                }
                Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                    Some(Open::List(items, place, anchor, before)) => {
                        let node = Rc::new(Node { place, value: Value::List(items) });
                        self.keep(anchor, &node, self.values - before + 1);
                        (node, 0)
                    }
                    Some(Open::Map(entries, _, place, anchor, before)) => {
                        let node = Rc::new(Node { place, value: Value::Map(entries) });
                        self.keep(anchor, &node, self.values - before + 1);
                        (node, 0)
                    }
                    None => continue,
                },
                _ => continue,
            };
            self.values += 1;
            if self.values > limits::FILE_VALUES {
                return fail(Fault::Limit, "too many values, aliases followed");
            }
            self.keep(anchor, &node, 1);
            match open.last_mut() {
                None => root = Some(node),
                Some(Open::List(items, ..)) => items.push(node),
                Some(Open::Map(entries, key, ..)) => match key.take() {
                    Some((name, at)) => entries.push((name, at, node)),
                    None => match &node.value {
                        Value::Text(name) if name == "<<" => {
                            return fail(Fault::Syntax, "merge keys are not read here");
                        }
                        Value::Text(name) => *key = Some((name.clone(), place)),
                        other => return fail(Fault::Syntax, &format!("a key is text, not {}", other.kind())),
                    },
                },
            }
        }
        match root {
            Some(root) => Ok(Rc::unwrap_or_clone(root)),
            None => Ok(Node { place: Place { line: 1, column: 1 }, value: Value::Null }),
        }
    }

    fn keep(&mut self, anchor: usize, node: &Rc<Node>, size: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, (Rc::clone(node), size));
        }
    }
}

/// YAML 1.2 core schema of a plain scalar.
fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::Text(text.to_owned());
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
            text.parse().map_or_else(|_| Value::Other, Value::Int)
        }
        // A float of the core schema; an address or a port range is text.
        _ if digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') && text.parse::<f64>().is_ok() => {
            Value::Other
        }
        _ => Value::Text(text.to_owned()),
    }
}

fn toml_tree(text: &str) -> Result<Node, Mistakes> {
    let starts: Vec<usize> =
        std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let place = |at: usize| {
        let line = starts.partition_point(|&start| start <= at).max(1);
        let column = text.get(starts[line - 1]..at).map_or(1, |before| before.chars().count() + 1);
        Place { line, column }
    };
    let (table, errors) = toml::de::DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let mut mistakes = Mistakes::default();
        for error in errors {
            let at = error.span().map(|span| place(span.start));
            mistakes.add_at(&Path::default(), Fault::Syntax, error.message().to_owned(), at);
        }
        return Err(mistakes);
    }
    let mut values = 0;
    let root = toml_table(table.get_ref(), place(0), &place, 0, &mut values);
    root.ok_or_else(|| one(Fault::Limit, "nested too deeply, or too many values", None))
}

fn toml_table(
    table: &toml::de::DeTable<'_>,
    at: Place,
    place: &impl Fn(usize) -> Place,
    depth: usize,
    values: &mut usize,
) -> Option<Node> {
    let mut entries: Vec<(usize, String, Place, Rc<Node>)> = Vec::new();
    for (key, value) in table {
        let node = toml_value(value.get_ref(), place(value.span().start), place, depth + 1, values)?;
        entries.push((key.span().start, key.get_ref().to_string(), place(key.span().start), Rc::new(node)));
    }
    entries.sort_by_key(|entry| entry.0);
    Some(Node {
        place: at,
        value: Value::Map(entries.into_iter().map(|(_, key, at, node)| (key, at, node)).collect()),
    })
}

fn toml_value(
    value: &toml::de::DeValue<'_>,
    at: Place,
    place: &impl Fn(usize) -> Place,
    depth: usize,
    values: &mut usize,
) -> Option<Node> {
    *values += 1;
    if depth > limits::FILE_DEPTH || *values > limits::FILE_VALUES {
        return None;
    }
    use toml::de::DeValue;
    let value = match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or_else(|_| Value::Other, Value::Int)
        }
        DeValue::Float(_) => Value::Other,
        DeValue::Boolean(truth) => Value::Bool(*truth),
        DeValue::Datetime(_) => Value::Other,
        DeValue::Array(items) => {
            let nodes = items.iter().map(|item| {
                toml_value(item.get_ref(), place(item.span().start), place, depth + 1, values).map(Rc::new)
            });
            Value::List(nodes.collect::<Option<_>>()?)
        }
        DeValue::Table(table) => return toml_table(table, at, place, depth, values),
    };
    Some(Node { place: at, value })
}

pub(crate) mod json;
