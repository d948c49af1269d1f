//! `tests`: what the file demands of itself.

use super::{Reader, Sections, is_empty};
use crate::policy_file::hujson::Value;
use crate::policy_file::model::{FileTest, TestTarget};
use crate::policy_file::selector::Use;
use crate::policy_file::service;

impl Reader {
    pub(super) fn tests(&mut self, sections: &Sections<'_>) {
        let Some(section) = sections.get("tests") else { return };
        for (index, item) in self.items(&section.value, "tests").iter().enumerate() {
            let path = format!("tests[{index}]");
            let fields = self.fields(item, &path);
            let (mut source, mut protocol) = (None, None);
            let (mut accept, mut deny) = (Vec::new(), Vec::new());
            let mut demands = false;
            for (name, member) in fields {
                let inner = format!("{path}.{}", member.key);
                match name.as_str() {
                    "src" | "user" => {
                        let Some(word) = self.text(&member.value, &inner) else { continue };
                        let read = self.selector(member.value.at, &inner, word, Use::TestSource);
                        source = Some(read.map(|selector| (selector, word.to_owned())));
                    }
                    "proto" => {
                        protocol = self.protocol(&member.value, &inner);
                        if protocol.is_some_and(|protocol| !protocol.has_ports()) {
                            self.found.add(member.value.at, &inner, "tests know tcp, udp and sctp only");
                        }
                    }
                    "accept" | "allow" | "deny" => {
                        demands |= !is_empty(&member.value);
                        let list = if name == "deny" { &mut deny } else { &mut accept };
                        list.extend(self.test_targets(&member.value, &inner));
                    }
                    _ => {}
                }
            }
            if !demands {
                self.found.add(item.at, &path, "it has neither accept nor deny");
            }
            match source {
                Some(Some((source, source_word))) => {
                    self.policy.tests.push(FileTest {
                        at: item.at,
                        source,
                        source_word,
                        protocol,
                        accept,
                        deny,
                    });
                }
                Some(None) => {}
                None => self.found.add(item.at, &path, "it has no src"),
            }
        }
    }

    fn test_targets(&mut self, value: &Value, path: &str) -> Vec<TestTarget> {
        let mut targets = Vec::new();
        for (at, path, word) in self.words(value, path) {
            let Some((host, port)) = word.rsplit_once(':') else {
                self.found.add(at, &path, format!("{word:?} has no port: want HOST:PORT"));
                continue;
            };
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let Some(port) = service::port(port) else {
                self.found.add(at, &path, format!("{port:?} is no single port"));
                continue;
            };
            if self.selector(at, &path, host, Use::TestTarget).is_some() {
                targets.push(TestTarget { at, word: word.to_owned(), host: host.to_owned(), port });
            }
        }
        targets
    }
}
