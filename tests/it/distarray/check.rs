//! Every rule of the validator, with what keeps it and what breaks it. Each case names exactly the rules that are broken; `~` stands before a warning.

use std::collections::BTreeSet;

use partgrid::distarray::check::{
    Finding, Mode, Rule, Severity, read_all, read_local, validate_all, validate_local,
};
use partgrid::distarray::{Distribution, Value, from_json};
use partgrid::error::ErrorKind;

use super::cases::{LENIENT, LOCAL, SECTION};
use super::notation::sections;
use super::rank_cases::ACROSS;

#[test]
fn what_is_no_section_is_told() {
    for (text, expected) in SECTION {
        let value = from_json(text).unwrap();
        expect(text, &validate_local(&value, Mode::Strict), expected);
        assert_eq!(
            read_local(&value, Mode::Strict).is_ok(),
            expected.is_empty(),
            "{text}"
        );
    }
}

#[test]
fn every_rule_of_one_dictionary_is_kept_and_broken() {
    for (text, expected) in LOCAL {
        let section = &sections(text)[0];
        let found = validate_local(section, Mode::Strict);
        expect(text, &found, expected);
        assert!(found.iter().all(|finding| finding.rank.is_none()), "{text}");
        let is_valid = found
            .iter()
            .all(|finding| finding.severity == Severity::Warning);
        assert_eq!(
            read_local(section, Mode::Strict).is_ok(),
            is_valid,
            "{text}"
        );
        assert!(
            found.iter().all(|finding| finding.dimension.is_some()),
            "{text}"
        );
    }
}

#[test]
fn a_lenient_reader_warns_of_what_it_bears_and_refuses_the_rest() {
    for (text, expected) in LENIENT {
        let section = &sections(text)[0];
        expect(text, &validate_local(section, Mode::Lenient), expected);
        let bears = !expected.split(' ').any(|rule| !rule.starts_with('~'));
        assert_eq!(read_local(section, Mode::Lenient).is_ok(), bears, "{text}");
        assert!(read_local(section, Mode::Strict).is_err(), "{text}");
    }
}

#[test]
fn every_rule_across_ranks_is_kept_and_broken() {
    for (text, expected) in ACROSS {
        let all = sections(text);
        let found = validate_all(&all, Mode::Strict);
        expect(text, &found, expected);
        let is_valid = found
            .iter()
            .all(|finding| finding.severity == Severity::Warning);
        match read_all(&all, Mode::Strict) {
            Ok(read) => {
                assert!(is_valid, "{text}");
                let distribution = Distribution::try_from_sections(&read).unwrap();
                for (rank, section) in read.iter().enumerate() {
                    assert_eq!(
                        distribution.local_shape(rank).as_ref(),
                        Some(&section.shape),
                        "{text}"
                    );
                    assert_eq!(distribution.held(rank), Some(section.held()), "{text}");
                    assert_eq!(distribution.owned(rank), Some(section.owned()), "{text}");
                }
            }
            Err(error) => {
                assert!(!is_valid, "{text}");
                assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
            }
        }
    }
}

#[test]
fn every_rule_has_a_case_that_breaks_it_and_there_are_enough() {
    let tables = [SECTION, LOCAL, LENIENT, ACROSS];
    let all = || tables.iter().flat_map(|table| table.iter());
    let broken: BTreeSet<&str> = all()
        .flat_map(|(_, expected)| expected.split(' '))
        .map(|rule| rule.trim_start_matches('~'))
        .collect();
    for rule in Rule::ALL {
        assert!(broken.contains(rule.name()), "{rule}: {}", rule.text());
    }
    assert!(all().count() >= 150, "{}", all().count());
}

#[test]
fn findings_name_rank_dimension_and_key_and_say_what_came() {
    let all = sections(
        "10 3x4 b 5 0/2 0:3 ; b 9 0/2 0:4 | 10 3x5 b 5 0/2 0:3 ; b 9 1/2 4:9 | 10 2x4 b 5 1/2 3:5 ; b 9 0/2 0:4 | 10 2x5 b 5 1/2 3:5 ; b 9 1/2 4:9 padding=[1,-2]",
    );
    let found = validate_all(&all, Mode::Strict);
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "error D7: padding must be a tuple of two ints of at least 0, got (1, -2) (rank: 3, dimension: 1, key: padding)"
        ]
    );
    let error = read_all(&all, Mode::Lenient).unwrap_err();
    let context = ["rule", "rank", "dimension", "key"].map(|name| error.context(name));
    assert_eq!(context, [Some("D7"), Some("3"), Some("1"), Some("padding")]);
    assert_eq!(error.hint(), None);
    let two = sections("10 4 b 5 0/1 0:5 padding=1");
    let error = read_all(&two, Mode::Strict).unwrap_err();
    assert!(error.hint().is_none(), "{error}");
    let two = sections("10 4 b 5 0/1 -start padding=1");
    let error = read_all(&two, Mode::Strict).unwrap_err();
    assert!(
        error.hint().unwrap().starts_with("2 more are wrong"),
        "{error}"
    );
}

#[test]
fn all_faults_of_a_section_are_told_at_once() {
    let text = r#"{"__version__": "0.11.0", "buffer": [1], "extra": null, "dim_data": {"list": [3, {"dist_type": "b", "size": true}, {}]}}"#;
    let found = validate_local(&from_json(text).unwrap(), Mode::Strict);
    expect(text, &found, "T2 T3 T4 T5 T6 D3 D4 D5");
    assert_eq!(found.len(), 10, "{found:#?}");
}

#[test]
fn no_sections_are_no_array() {
    let found = validate_all(&[], Mode::Strict);
    expect("none", &found, "X1");
    assert!(read_all(&[], Mode::Lenient).is_err());
}

#[test]
fn keys_that_are_no_texts_are_told() {
    let entries = vec![(Value::Int(3), Value::Null), (Value::Null, Value::Null)];
    let found = validate_local(&Value::Dict(entries), Mode::Strict);
    expect("number", &found, "T2");
    assert_eq!(found.len(), 5);
}

pub(super) fn expect(text: &str, found: &[Finding], expected: &str) {
    let names: BTreeSet<String> = found
        .iter()
        .map(|finding| match finding.severity {
            Severity::Error => finding.rule.name().to_owned(),
            Severity::Warning => format!("~{}", finding.rule.name()),
        })
        .collect();
    let expected: BTreeSet<String> = expected.split_whitespace().map(ToOwned::to_owned).collect();
    assert_eq!(names, expected, "{text}\n{found:#?}");
}

#[test]
fn the_document_has_every_rule_in_the_same_words() {
    let document = include_str!("../../../docs/distarray.md");
    for rule in Rule::ALL {
        let line = format!("| {} | {} |", rule.name(), rule.text());
        assert!(document.contains(&line), "docs/distarray.md lacks: {line}");
    }
}
