//! The grammar beside `serde_json`, the two liberties that HuJSON takes, places, bounds and garbage.

use proptest::prelude::*;

use super::*;

fn plain(value: &Value) -> serde_json::Value {
    match &value.kind {
        Kind::Null => serde_json::Value::Null,
        Kind::Bool(bool) => (*bool).into(),
        Kind::Number(text) => serde_json::from_str(text).expect("a number"),
        Kind::String(text) => text.clone().into(),
        Kind::Array(items) => items.iter().map(plain).collect(),
        Kind::Object(members) => {
            members.iter().map(|member| (member.key.clone(), plain(&member.value))).collect()
        }
    }
}

fn read(text: &str) -> serde_json::Value {
    plain(&parse(text).unwrap_or_else(|broken| panic!("{text}: {broken:?}")))
}

fn broken(text: &str) -> (usize, usize, String) {
    let Err(Broken { at, why }) = parse(text) else { panic!("{text:?} was read") };
    (at.line, at.column, why)
}

#[test]
fn comments_and_trailing_commas_are_no_matter() {
    let text =
        "// first\n{ /* a */ \"a\" /* b */ : [1, 2, /* c */], // d\n \"b\": {\"c\": null,},\n}\n// last";
    assert_eq!(read(text), serde_json::json!({ "a": [1, 2], "b": { "c": null } }));
    assert_eq!(
        read("[\"// no comment\", \"/* nor this */\"]"),
        serde_json::json!(["// no comment", "/* nor this */"])
    );
    assert_eq!(read("/**/[]/***/"), serde_json::json!([]));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    assert_eq!(broken("{\n  \"a\": 1\n  \"b\": 2\n}"), (3, 3, "expected \",\" or \"}\", found '\"'".into()));
    assert_eq!(broken("[1,,2]").1, 4);
    assert_eq!(broken("[,]").1, 2);
    assert_eq!(broken("{,}").1, 2);
    assert_eq!(broken("{a: 1}").2, "expected a key or \"}\", found 'a'");
    assert_eq!(broken("{'a': 1}").1, 2);
    assert_eq!(broken("{\"a\" 1}").2, "expected \":\" after the key \"a\", found '1'");
    assert_eq!(broken("[1]\n x"), (2, 2, "something after the end of the value".into()));
    assert_eq!(broken("[1 /* never\nends"), (1, 4, "a comment without its end".into()));
    assert_eq!(broken("[1] / 2").2, "a lone \"/\": comments begin with // or /*");
    assert_eq!(broken("[\"ab\n\"]"), (1, 2, "a string without its end".into()));
    assert_eq!(broken("").2, "expected a value, found the end of the file");
    assert_eq!(broken("\u{feff}{}").2, "expected a value, found '\\u{feff}'");
}

#[test]
fn a_key_given_twice_is_refused_whatever_its_case() {
    assert_eq!(broken("{\"acls\": [],\n \"ACLs\": []}"), (2, 2, "the key \"ACLs\" is given twice".into()));
}

#[test]
fn numbers_and_words_are_as_json_has_them() {
    for text in ["0", "-0", "10", "-1.5e+10", "1E3", "0.25"] {
        assert_eq!(read(text), serde_json::from_str::<serde_json::Value>(text).expect("json"), "{text}");
    }
    for text in ["01", "-", "+1", "1.", ".5", "1e", "0x1", "NaN", "tru", "nul", "True", "truex"] {
        assert!(parse(text).is_err(), "{text}");
    }
}

#[test]
fn escapes_are_as_json_has_them_and_half_a_pair_is_replaced() {
    assert_eq!(read(r#""\"\\\/\b\f\n\r\té\ud83d\ude00""#), "\"\\/\u{8}\u{c}\n\r\té😀");
    assert_eq!(read(r#""\ud83d""#), "\u{fffd}");
    assert_eq!(read(r#""\ud83dA""#), "\u{fffd}A");
    for text in [r#""\x""#, r#""\u12""#, r#""\u12g4""#, "\"\\", "\"\t\""] {
        assert!(parse(text).is_err(), "{text}");
    }
}

#[test]
fn depth_and_size_are_bounded() {
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(parse(&deep(MAX_DEPTH)).is_ok());
    assert!(broken(&deep(MAX_DEPTH + 1)).2.contains("nested deeper"));
    assert!(broken(&"[".repeat(MAX_BYTES)).2.contains("nested deeper"));
    assert!(broken(&"{\"a\":".repeat(MAX_BYTES / 5)).2.contains("nested deeper"));
    assert!(broken(&" ".repeat(MAX_BYTES + 1)).2.contains("longer than"));
    assert!(parse(&format!("[{}]", "[],".repeat(MAX_BYTES / 3 - 1))).is_ok());
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        "\\PC{0,6}".prop_map(Into::into),
        "[a\"/*\\\\\\n\u{1}é,]{0,6}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::btree_map("[a-c/ ]{0,3}", inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_serde_json_writes_is_read_as_it_was(value in any_json()) {
        prop_assert_eq!(read(&value.to_string()), value.clone());
        prop_assert_eq!(read(&serde_json::to_string_pretty(&value).expect("json")), value);
    }

    #[test]
    fn no_liberty_is_taken_but_the_two(text in "[\\[\\]{}:,\"a0-9.eE+ \\-\\\\u\n/*tnul]{0,24}") {
        let ours = parse(&text);
        match serde_json::from_str::<serde_json::Value>(&text) {
            // A key may not be given twice here.
            Ok(theirs) => match &ours {
                Ok(value) => prop_assert_eq!(plain(value).to_string(), theirs.to_string()),
                Err(broken) => prop_assert!(broken.why.contains("given twice"), "{}: {:?}", text, broken),
            },
            Err(_) => prop_assert!(
                ours.is_err() || text.contains('/') || text.contains(',') || text.contains("\\u") || text.contains('e'),
                "{} was read", text
            ),
        }
    }

    #[test]
    fn garbage_never_panics_and_errors_lie_within_the_text(text in "\\PC{0,200}") {
        if let Err(Broken { at, .. }) = parse(&text) {
            prop_assert!(at.line <= text.lines().count().max(1) + 1);
            prop_assert!(at.column <= text.len() + 1);
        }
    }
}
