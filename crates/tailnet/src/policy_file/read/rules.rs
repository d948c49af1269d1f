//! `acls` and `grants`.

use super::{Reader, Sections, is_empty};
use crate::policy_file::hujson::{Kind, Member, Value};
use crate::policy_file::model::{Rule, RuleRef, Section, Selector, Target};
use crate::policy_file::selector::Use;
use crate::policy_file::service::Service;
use crate::policy_file::verdict::Doubt;

impl Reader {
    pub(super) fn rules(&mut self, sections: &Sections<'_>) {
        let default_posture = sections
            .get("defaultsrcposture")
            .filter(|section| !is_empty(&section.value))
            .map(|section| section.at);
        let mut rules = Vec::new();
        for (key, section) in [("acls", Section::Acls), ("grants", Section::Grants)] {
            let Some(member) = sections.get(key) else { continue };
            for (index, item) in self.items(&member.value, key).iter().enumerate() {
                let at = RuleRef { section, index, at: item.at };
                let mut rule = Rule {
                    at,
                    sources: Vec::new(),
                    targets: Vec::new(),
                    via: Vec::new(),
                    doubts: Vec::new(),
                };
                let own_posture = match section {
                    Section::Acls => self.acl(item, &mut rule),
                    Section::Grants => self.grant(item, &mut rule),
                };
                match (own_posture, default_posture) {
                    (Posture::Asked, _) => rule.doubts.push(Doubt::Posture(at)),
                    (Posture::Unsaid, Some(place)) => rule.doubts.push(Doubt::DefaultPosture(place)),
                    (Posture::Waived, _) | (Posture::Unsaid, None) => {}
                }
                rules.push(rule);
            }
        }
        let any = sections.contains_key("acls") || sections.contains_key("grants");
        self.policy.rules = any.then_some(rules);
    }

    /// Reads an entry of `acls`: `src` and `dst`, or `users` and `ports` as they were once called.
    fn acl(&mut self, item: &Value, rule: &mut Rule) -> Posture {
        let path = rule.at.path();
        let fields = self.fields(item, &path);
        let mut posture = Posture::Unsaid;
        let mut protocol = None;
        let (mut action, mut sources, mut targets) = (None, None, None);
        for (name, member) in fields {
            let inner = format!("{path}.{}", member.key);
            let value = &member.value;
            match name.as_str() {
                "action" => action = self.text(value, &inner).map(|text| (value.at, text)),
                "src" | "users" => sources = Some((value, inner)),
                "dst" | "ports" => targets = Some((value, inner)),
                "proto" => protocol = self.protocol(value, &inner),
                "srcposture" => posture = asked(value),
                _ => rule.doubts.push(Doubt::UnknownField(rule.at, member.key.clone())),
            }
        }
        match action {
            Some((_, "accept")) => {}
            Some((at, other)) => {
                self.found.add(at, &path, format!("action {other:?} is not known: there is only \"accept\""));
            }
            None => self.found.add(item.at, &path, "it has no action"),
        }
        self.sources(item, sources, rule);
        let Some((targets, inner)) = self.required(item, &path, "dst", targets) else { return posture };
        for (at, inner, word) in self.words(targets, &inner) {
            let Some((host, ports)) = word.rsplit_once(':') else {
                self.found.add(at, &inner, format!("{word:?} has no ports: want HOST:PORTS"));
                continue;
            };
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let selector = self.selector(at, &inner, host, Use::Target);
            match (Service::read(protocol, ports), selector) {
                (Ok(service), Some(selector)) => {
                    rule.targets.push(Target { selector, services: vec![service] })
                }
                (Ok(_), None) => {}
                (Err(message), _) => self.found.add(at, &inner, message),
            }
        }
        posture
    }

    fn grant(&mut self, item: &Value, rule: &mut Rule) -> Posture {
        let path = rule.at.path();
        let fields = self.fields(item, &path);
        let mut posture = Posture::Unsaid;
        let (mut sources, mut targets, mut services, mut app) = (None, None, Vec::new(), None);
        let mut gives = false;
        for (name, member) in fields {
            let inner = format!("{path}.{}", member.key);
            let value = &member.value;
            match name.as_str() {
                "src" => sources = Some((value, inner)),
                "dst" => targets = Some((value, inner)),
                "ip" => {
                    for (at, inner, word) in self.words(value, &inner) {
                        gives = true;
                        match Service::read_grant(word) {
                            Ok(service) => services.push(service),
                            Err(message) => self.found.add(at, &inner, message),
                        }
                    }
                }
                "app" => {
                    let given = !self.members(value, &inner).is_empty();
                    gives |= given;
                    app = Some(value.at).filter(|_| given);
                }
                "via" => {
                    for selector in self.selectors(value, &inner, Use::Via) {
                        if let Selector::Tag(tag) = selector {
                            rule.via.push(tag);
                        }
                    }
                }
                "srcposture" => posture = asked(value),
                _ => rule.doubts.push(Doubt::UnknownField(rule.at, member.key.clone())),
            }
        }
        if !gives {
            self.found.add(item.at, &path, "it has neither ip nor app, so it grants nothing");
        }
        self.sources(item, sources, rule);
        let Some((targets, inner)) = self.required(item, &path, "dst", targets) else { return posture };
        let selectors = self.selectors(targets, &inner, Use::GrantTarget);
        if let Some(at) = app
            && selectors.contains(&Selector::Internet)
        {
            self.found.add(at, &path, "app cannot be granted on autogroup:internet");
        }
        rule.targets =
            selectors.into_iter().map(|selector| Target { selector, services: services.clone() }).collect();
        posture
    }

    pub(super) fn fields<'a>(&mut self, item: &'a Value, path: &str) -> Vec<(String, &'a Member)> {
        let members = match &item.kind {
            Kind::Object(members) => members.as_slice(),
            _ => {
                self.expected(item, path, "an object");
                &[]
            }
        };
        let mut fields: Vec<(String, &Member)> = Vec::new();
        for member in members.iter().filter(|member| member.value.kind != Kind::Null) {
            let name = match member.key.to_ascii_lowercase().as_str() {
                "users" => "src".to_owned(),
                "ports" => "dst".to_owned(),
                name => name.to_owned(),
            };
            if fields.iter().any(|(other, _)| *other == name) {
                self.found.add(member.at, path, format!("{:?} says again what was said already", member.key));
            }
            fields.push((name, member));
        }
        fields
    }

    fn required<'a>(
        &mut self,
        item: &Value,
        path: &str,
        name: &str,
        field: Option<(&'a Value, String)>,
    ) -> Option<(&'a Value, String)> {
        let Some((value, inner)) = field else {
            self.found.add(item.at, path, format!("it has no {name}"));
            return None;
        };
        if is_empty(value) {
            self.found.add(value.at, &inner, "it is empty");
        }
        Some((value, inner))
    }

    fn sources(&mut self, item: &Value, field: Option<(&Value, String)>, rule: &mut Rule) {
        let path = rule.at.path();
        if let Some((value, inner)) = self.required(item, &path, "src", field) {
            rule.sources = self.selectors(value, &inner, Use::Source);
        }
    }
}

/// Whether a rule asks for a posture.
#[derive(Clone, Copy)]
enum Posture {
    Unsaid,
    /// An empty list: none is asked for, not even the default.
    Waived,
    Asked,
}

fn asked(value: &Value) -> Posture {
    if is_empty(value) { Posture::Waived } else { Posture::Asked }
}
