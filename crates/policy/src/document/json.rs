//! JSON with places (RFC 8259). `serde_json` keeps none, and takes doubled keys.

use std::rc::Rc;

use super::{Node, Value, one};
use crate::mistake::{Fault, Mistakes, Place};
use crate::parse::limits;

pub(crate) fn read(text: &str) -> Result<Node, Mistakes> {
    let mut reader = Reader { text, at: 0, line: 1, line_start: 0, values: 0 };
    reader.blanks();
    let node = reader.value(0)?;
    reader.blanks();
    if reader.at == text.len() { Ok(node) } else { reader.fail(Fault::Syntax, "something follows the value") }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    line: usize,
    line_start: usize,
    values: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn place(&self) -> Place {
        Place {
            line: self.line,
            column: self.text.get(self.line_start..self.at).map_or(1, |before| before.chars().count() + 1),
        }
    }

    fn fail<T>(&self, fault: Fault, message: &str) -> Result<T, Mistakes> {
        Err(one(fault, message, Some(self.place())))
    }

    fn blanks(&mut self) {
        while let Some(byte @ (b' ' | b'\t' | b'\r' | b'\n')) = self.peek() {
            self.at += 1;
            if byte == b'\n' {
                self.line += 1;
                self.line_start = self.at;
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, Mistakes> {
        self.values += 1;
        if depth > limits::FILE_DEPTH || self.values > limits::FILE_VALUES {
            return self.fail(Fault::Limit, "nested too deeply, or too many values");
        }
        let place = self.place();
        let value = match self.peek() {
            Some(b'{') => self.map(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Value::Text(self.text()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => {
                let words =
                    [("true", Value::Bool(true)), ("false", Value::Bool(false)), ("null", Value::Null)];
                let Some((word, value)) =
                    words.into_iter().find(|(word, _)| self.text[self.at..].starts_with(word))
                else {
                    return self.fail(Fault::Syntax, "a value is expected here");
                };
                self.at += word.len();
                value
            }
        };
        Ok(Node { place, value })
    }

    fn list(&mut self, depth: usize) -> Result<Value, Mistakes> {
        let mut items = Vec::new();
        self.at += 1;
        self.blanks();
        while self.peek() != Some(b']') {
            items.push(Rc::new(self.value(depth + 1)?));
            self.comma(b']')?;
        }
        self.at += 1;
        Ok(Value::List(items))
    }

    fn map(&mut self, depth: usize) -> Result<Value, Mistakes> {
        let mut entries = Vec::new();
        self.at += 1;
        self.blanks();
        while self.peek() != Some(b'}') {
            let place = self.place();
            if self.peek() != Some(b'"') {
                return self.fail(Fault::Syntax, "a key in double quotes is expected here");
            }
            let key = self.text()?;
            self.blanks();
            if self.peek() != Some(b':') {
                return self.fail(Fault::Syntax, "a colon is expected here");
            }
            self.at += 1;
            self.blanks();
            entries.push((key, place, Rc::new(self.value(depth + 1)?)));
            self.comma(b'}')?;
        }
        self.at += 1;
        Ok(Value::Map(entries))
    }

    /// A comma and another item, or the end.
    fn comma(&mut self, end: u8) -> Result<(), Mistakes> {
        self.blanks();
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                self.blanks();
                if self.peek() == Some(end) {
                    self.fail(Fault::Syntax, "a value is expected after the comma")
                } else {
                    Ok(())
                }
            }
            Some(byte) if byte == end => Ok(()),
            _ => self.fail(Fault::Syntax, "a comma or the end is expected here"),
        }
    }

    fn text(&mut self) -> Result<String, Mistakes> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(byte) if byte >= 0x20 => self.at += 1,
                _ => return self.fail(Fault::Syntax, "the text does not end on this line"),
            }
        }
        self.at += 1;
        let quoted = self.text.get(start..self.at);
        match quoted.and_then(|quoted| serde_json::from_str(quoted).ok()) {
            Some(text) => Ok(text),
            None => self.fail(Fault::Syntax, "the text holds an escape that is none"),
        }
    }

    fn number(&mut self) -> Result<Value, Mistakes> {
        let start = self.at;
        while let Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        let text = &self.text[start..self.at];
        if serde_json::from_str::<f64>(text).is_err() {
            return self.fail(Fault::Syntax, "this is no number");
        }
        Ok(text.parse().map_or_else(|_| Value::Other, Value::Int))
    }
}
