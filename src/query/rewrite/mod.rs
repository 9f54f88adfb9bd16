//! Statements in words that the engine knows, before anything is planned.
//!
//! Comes in: the words of a text, or a statement as it was parsed. Goes out: the same with what means the same to the engine. One construct a file; `standard` walks past the expressions of a
//! statement, and `dialect` tells the parser what to read.
//!
//! - Words of a text, before it is parsed: `asof`, `chained`, `comprehensions`, `dialect`, `digits`, `filtered`, `from_first`, `prefixed`, `samples`, `trimmed`, and in `each_column` and `pivot`.
//! - Items and names of SELECT: `aliased`, `each_column` with `around`, `one_value`, `renamed`, `same_names`, `struct_stars`, `table_rows`, `value_names`, `wide`, `written`.
//! - FROM: `derived`, `inner_with`, `laterals`, `pivot`, `using`.
//! - GROUP BY and ORDER BY: `order`, `positions`.
//! - Expressions: `array_of`, `called`, `chained`, `collations`, `distinct_from`, `fields`, `lambdas`, `long_numbers`, `named_windows`, `nested_json`, `of_one_row`, `operators`, `pattern`, `row_in`, `shifts`, `standard`, `synonyms`, `type_words`.
//! - After an error of the planner: `letter_case`, `same_names`.
//!
//! Never here: what depends on types (`plan/types`, `plan/meaning`), and what may be asked at all (`guard.rs`, `shape.rs`, `permission.rs`).

pub(super) mod aliased;
mod around;
mod array_of;
pub(super) mod asof;
pub(super) mod called;
pub(super) mod chained;
mod collations;
pub(super) mod comprehensions;
mod derived;
pub(super) mod dialect;
pub(super) mod digits;
mod distinct_from;
pub(super) mod each_column;
mod fields;
pub(super) mod filtered;
pub(super) mod from_first;
mod inner_with;
mod lambdas;
mod laterals;
pub(super) mod letter_case;
mod long_numbers;
mod named_windows;
mod nested_json;
mod of_one_row;
pub(super) mod one_value;
pub(super) mod operators;
mod order;
mod pattern;
pub(super) mod pivot;
pub(super) mod positions;
pub(super) mod prefixed;
mod renamed;
pub(super) mod row_in;
pub(super) mod same_names;
pub(super) mod samples;
mod shifts;
pub(super) mod standard;
pub(super) mod struct_stars;
pub(super) mod synonyms;
pub(super) mod table_rows;
pub(super) mod trimmed;
mod type_words;
pub(super) mod using;
mod value_names;
mod wide;
pub(super) mod written;
