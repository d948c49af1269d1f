//! HuJSON: JSON with comments and trailing commas, each value with its place in the file.
//!
//! The grammar is that of github.com/tailscale/hujson, which control servers read policies with. A parser of our own
//! because it has to bound depth and size, refuse a key given twice, and say where everything stands.

use std::fmt;

use serde::Serialize;

/// Deepest nesting read. Real policies need six.
const MAX_DEPTH: usize = 64;
/// Most bytes of a file, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// A place in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Byte within the line, from 1.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A value and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Value {
    pub(super) at: Position,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    /// As written.
    Number(String),
    String(String),
    Array(Vec<Value>),
    Object(Vec<Member>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Member {
    pub(super) at: Position,
    pub(super) key: String,
    pub(super) value: Value,
}

impl Kind {
    /// What it is, for a message.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::Array(_) => "a list",
            Self::Object(_) => "an object",
        }
    }
}

/// Where and how a text stops being HuJSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) at: Position,
    pub(super) why: String,
}

/// Reads a whole text.
pub(super) fn parse(text: &str) -> Result<Value, Broken> {
    let start = Position { line: 1, column: 1 };
    if text.len() > MAX_BYTES {
        return Err(Broken { at: start, why: format!("longer than {MAX_BYTES} bytes") });
    }
    let mut parser = Parser { bytes: text.as_bytes(), text, at: 0, line: 1, line_start: 0, depth: 0 };
    parser.space()?;
    let value = parser.value()?;
    parser.space()?;
    match parser.peek() {
        None => Ok(value),
        Some(_) => Err(parser.broken("something after the end of the value")),
    }
}

struct Parser<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    line: usize,
    line_start: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn position(&self) -> Position {
        Position { line: self.line, column: self.at - self.line_start + 1 }
    }

    fn broken(&self, why: impl Into<String>) -> Broken {
        Broken { at: self.position(), why: why.into() }
    }

    /// What stands here, for a message.
    fn found(&self) -> String {
        match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            None => "the end of the file".to_owned(),
            Some(char) => format!("{char:?}"),
        }
    }

    fn newline(&mut self) {
        self.line += 1;
        self.line_start = self.at;
    }

    /// Passes white space and comments.
    fn space(&mut self) -> Result<(), Broken> {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'\n' => {
                    self.at += 1;
                    self.newline();
                }
                b'/' => self.comment()?,
                _ => break,
            }
        }
        Ok(())
    }

    fn comment(&mut self) -> Result<(), Broken> {
        match self.bytes.get(self.at + 1) {
            Some(b'/') => {
                while self.peek().is_some_and(|byte| byte != b'\n') {
                    self.at += 1;
                }
                Ok(())
            }
            Some(b'*') => {
                let open = self.position();
                self.at += 2;
                loop {
                    match self.peek() {
                        None => return Err(Broken { at: open, why: "a comment without its end".to_owned() }),
                        Some(b'*') if self.bytes.get(self.at + 1) == Some(&b'/') => {
                            self.at += 2;
                            return Ok(());
                        }
                        Some(byte) => {
                            self.at += 1;
                            if byte == b'\n' {
                                self.newline();
                            }
                        }
                    }
                }
            }
            Some(_) | None => Err(self.broken("a lone \"/\": comments begin with // or /*")),
        }
    }

    fn value(&mut self) -> Result<Value, Broken> {
        let at = self.position();
        let kind = match self.peek() {
            Some(b'{') => self.nested(Self::object)?,
            Some(b'[') => self.nested(Self::array)?,
            Some(b'"') => Kind::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(_) | None => self.word()?,
        };
        Ok(Value { at, kind })
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Result<Kind, Broken>) -> Result<Kind, Broken> {
        if self.depth == MAX_DEPTH {
            return Err(self.broken(format!("nested deeper than {MAX_DEPTH}")));
        }
        self.depth += 1;
        self.at += 1;
        let kind = read(self)?;
        self.depth -= 1;
        Ok(kind)
    }

    fn word(&mut self) -> Result<Kind, Broken> {
        for (word, kind) in [("null", Kind::Null), ("true", Kind::Bool(true)), ("false", Kind::Bool(false))] {
            if self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
                self.at += word.len();
                return Ok(kind);
            }
        }
        Err(self.broken(format!("expected a value, found {}", self.found())))
    }

    fn object(&mut self) -> Result<Kind, Broken> {
        let mut members: Vec<Member> = Vec::new();
        let mut keys = std::collections::BTreeSet::new();
        loop {
            self.space()?;
            let at = self.position();
            match self.peek() {
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Kind::Object(members));
                }
                Some(b'"') => {}
                Some(_) | None => {
                    return Err(self.broken(format!("expected a key or \"}}\", found {}", self.found())));
                }
            }
            let key = self.string()?;
            // Go would silently take the last; whoever reads the file may see the first. Case does not matter to Go.
            if !keys.insert(key.to_ascii_lowercase()) {
                return Err(Broken { at, why: format!("the key {key:?} is given twice") });
            }
            self.space()?;
            if self.peek() != Some(b':') {
                return Err(
                    self.broken(format!("expected \":\" after the key {key:?}, found {}", self.found()))
                );
            }
            self.at += 1;
            self.space()?;
            let value = self.value()?;
            members.push(Member { at, key, value });
            self.separator(b'}')?;
        }
    }

    fn array(&mut self) -> Result<Kind, Broken> {
        let mut items = Vec::new();
        loop {
            self.space()?;
            if self.peek() == Some(b']') {
                self.at += 1;
                return Ok(Kind::Array(items));
            }
            items.push(self.value()?);
            self.separator(b']')?;
        }
    }

    /// Passes a comma, which may be left out before the end.
    fn separator(&mut self, end: u8) -> Result<(), Broken> {
        self.space()?;
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(())
            }
            Some(byte) if byte == end => Ok(()),
            Some(_) | None => {
                Err(self.broken(format!("expected \",\" or \"{}\", found {}", char::from(end), self.found())))
            }
        }
    }

    fn number(&mut self) -> Result<Kind, Broken> {
        let start = self.at;
        let digits = |parser: &mut Self| {
            let first = parser.at;
            while parser.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                parser.at += 1;
            }
            parser.at > first
        };
        let take = |parser: &mut Self, wanted: &[u8]| {
            let there = parser.peek().is_some_and(|byte| wanted.contains(&byte));
            parser.at += usize::from(there);
            there
        };
        take(self, b"-");
        let whole = take(self, b"0") || digits(self);
        let fraction = !take(self, b".") || digits(self);
        let exponent = !take(self, b"eE") || {
            take(self, b"+-");
            digits(self)
        };
        if !(whole && fraction && exponent) {
            return Err(self.broken("not a number"));
        }
        Ok(Kind::Number(self.text[start..self.at].to_owned()))
    }

    fn string(&mut self) -> Result<String, Broken> {
        let open = self.position();
        self.at += 1;
        let mut out = String::new();
        loop {
            let start = self.at;
            while self.peek().is_some_and(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
                self.at += 1;
            }
            out.push_str(&self.text[start..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                Some(b'\n') | None => {
                    return Err(Broken { at: open, why: "a string without its end".to_owned() });
                }
                Some(_) => return Err(self.broken("a control character in a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Broken> {
        let bad = self.broken("an unknown escape in a string");
        self.at += 1;
        let Some(byte) = self.peek() else { return Err(bad) };
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = self.hex().ok_or(bad)?;
                self.surrogate(unit)
            }
            _ => return Err(bad),
        })
    }

    /// Joins a pair; half of one becomes the replacement character, as in Go.
    fn surrogate(&mut self, unit: u32) -> char {
        if (0xd800..0xdc00).contains(&unit) && self.bytes[self.at..].starts_with(b"\\u") {
            let back = self.at;
            self.at += 2;
            if let Some(low) = self.hex().filter(|low| (0xdc00..0xe000).contains(low)) {
                let code = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                return char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            }
            self.at = back;
        }
        char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        self.at += 4;
        u32::from_str_radix(digits, 16).ok()
    }
}

#[cfg(test)]
mod tests;
