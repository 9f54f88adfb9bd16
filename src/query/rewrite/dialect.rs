//! The SQL that is read here: that of the generic dialect of the parser, lambdas (`x -> x + 1`), columns of JSON (`j -> 'a'`), powers (`x ** 2`), and lists behind IN (`x IN [1, 2]`).
//!
//! Comes in: the words of a text; questions of the parser. Goes out: the words, in which arrows of JSON and of lambdas are told apart; what the parser reads. Never here: what is allowed of it.

use std::any::TypeId;

use datafusion::sql::sqlparser::ast::{Array, Expr, UnaryOperator, Value};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, Precedence};
use datafusion::sql::sqlparser::keywords::{Keyword, RESERVED_FOR_COLUMN_ALIAS};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::called::called;
use super::each_column;
use super::synonyms::put;

/// The functions that take lambdas.
pub(super) const BY_LAMBDA: [&str; 13] = [
    "any_match",
    "apply",
    "array_any_match",
    "array_apply",
    "array_filter",
    "array_reduce",
    "array_transform",
    "filter",
    "list_any_match",
    "list_apply",
    "list_filter",
    "list_reduce",
    "list_transform",
];

/// The token of `->` between a text of JSON and a key; the parser takes the other one for that of a lambda.
pub(in crate::query) const ARROW: &str = "->";

/// The token of `**`, which the parser has not.
pub(super) const POWER: &str = "**";

/// The dialect.
#[derive(Debug)]
pub(in crate::query) struct Sql;

/// Those questions that the generic dialect answers otherwise than dialects do unless they say so.
macro_rules! as_generic {
    ($($question:ident),+ $(,)?) => {
        impl Dialect for Sql {
            fn dialect(&self) -> TypeId {
                TypeId::of::<GenericDialect>()
            }

            fn is_delimited_identifier_start(&self, letter: char) -> bool {
                GenericDialect.is_delimited_identifier_start(letter)
            }

            fn is_identifier_start(&self, letter: char) -> bool {
                GenericDialect.is_identifier_start(letter)
            }

            fn is_identifier_part(&self, letter: char) -> bool {
                GenericDialect.is_identifier_part(letter)
            }

            // `a LIKE 'x' = true` is `(a LIKE 'x') = true`, as in PostgreSQL and DuckDB.
            fn prec_value(&self, precedence: Precedence) -> u8 {
                GenericDialect.prec_value(match precedence {
                    Precedence::Like => Precedence::Pipe,
                    other => other,
                })
            }

            fn supports_lambda_functions(&self) -> bool {
                true
            }

            fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
                match parser.peek_token_ref().token {
                    Token::Tilde => Some(self.parse_bits(parser)),
                    Token::Minus => Some(self.parse_signed(parser, UnaryOperator::Minus)),
                    Token::Plus => Some(self.parse_signed(parser, UnaryOperator::Plus)),
                    _ => None,
                }
            }

            fn parse_infix(
                &self,
                parser: &mut Parser<'_>,
                expr: &Expr,
                _: u8,
            ) -> Option<Result<Expr, ParserError>> {
                let token = |place| &parser.peek_nth_token_ref(place).token;
                let is = |place, keyword| matches!(token(place), Token::Word(word) if word.keyword == keyword);
                let is_negated = is(0, Keyword::NOT);
                let place = usize::from(is_negated);
                let is_in_list = is(place, Keyword::IN)
                    && *token(place + 1) != Token::LParen
                    && !is(place + 1, Keyword::UNNEST);
                if is_in_list {
                    return Some(self.parse_in_list(parser, expr.clone(), is_negated));
                }
                is_glob(parser, place)
                    .then(|| self.parse_glob(parser, expr.clone(), is_negated))
            }

            // As `||`, so that `j ->> 'a' || 'b'` and `j ->> 'a' = 'b'` begin with what the text has.
            fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
                match &parser.peek_token_ref().token {
                    Token::CustomBinaryOperator(name) if name == POWER => {
                        Some(Ok(self.power()))
                    }
                    Token::Word(_) if is_glob(parser, 0) || is_negated_glob(parser) => {
                        Some(Ok(self.prec_value(Precedence::Like)))
                    }
                    Token::CustomBinaryOperator(name) if name != ARROW => None,
                    Token::CustomBinaryOperator(_) | Token::LongArrow => {
                        Some(Ok(self.prec_value(Precedence::MulDivModOp)))
                    }
                    _ => None,
                }
            }

            $(
                fn $question(&self) -> bool {
                    GenericDialect.$question()
                }
            )+
        }
    };
}

as_generic!(
    supports_unicode_string_literal,
    supports_partition_by_after_order_by,
    supports_array_join_syntax,
    supports_group_by_expr,
    supports_group_by_with_modifier,
    supports_left_associative_joins_without_parens,
    supports_connect_by,
    supports_match_recognize,
    supports_pipe_operator,
    supports_start_transaction_modifier,
    supports_window_function_null_treatment_arg,
    supports_dictionary_syntax,
    supports_window_clause_named_window_reference,
    supports_parenthesized_set_variables,
    supports_select_wildcard_except,
    support_map_literal_syntax,
    allow_extract_custom,
    allow_extract_single_quotes,
    supports_extract_comma_syntax,
    supports_create_view_comment_syntax,
    supports_parens_around_table_factor,
    supports_values_as_table_factor,
    supports_create_index_with_clause,
    supports_explain_with_utility_options,
    supports_limit_comma,
    supports_update_order_by,
    supports_from_first_select,
    supports_projection_trailing_commas,
    supports_asc_desc_in_column_definition,
    supports_try_convert,
    supports_bitwise_shift_operators,
    supports_comment_on,
    supports_load_extension,
    supports_named_fn_args_with_assignment_operator,
    supports_struct_literal,
    supports_empty_projections,
    supports_nested_comments,
    supports_multiline_comment_hints,
    supports_user_host_grantee,
    supports_string_escape_constant,
    supports_array_typedef_with_brackets,
    supports_match_against,
    supports_set_names,
    supports_comma_separated_set_assignments,
    supports_filter_during_aggregation,
    supports_select_wildcard_exclude,
    supports_data_type_signed_suffix,
    supports_interval_options,
    supports_quote_delimited_string,
    supports_select_wildcard_replace,
    supports_select_wildcard_ilike,
    supports_select_wildcard_rename,
    supports_optimize_table,
    supports_install,
    supports_detach,
    supports_prewhere,
    supports_with_fill,
    supports_limit_by,
    supports_interpolate,
    supports_settings,
    supports_select_format,
    supports_comment_optimizer_hint,
    supports_constraint_keyword_without_name,
    supports_key_column_option,
    supports_comma_separated_trim,
    supports_cte_without_as,
    supports_select_item_multi_column_alias,
    supports_xml_expressions,
);

impl Sql {
    /// `~a + 1` is `~(a + 1)`, as in PostgreSQL and DuckDB.
    fn parse_bits(&self, parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
        parser.advance_token();
        let bits = parser.parse_subexpr(self.prec_value(Precedence::Xor))?;
        Ok(Expr::UnaryOp {
            op: UnaryOperator::BitwiseNot,
            expr: Box::new(bits),
        })
    }

    /// What is between `*` and a sign.
    fn power(&self) -> u8 {
        self.prec_value(Precedence::MulDivModOp) + 1
    }

    /// `-2 ** 2` is `(-2) ** 2`, as in DuckDB.
    fn parse_signed(
        &self,
        parser: &mut Parser<'_>,
        op: UnaryOperator,
    ) -> Result<Expr, ParserError> {
        parser.advance_token();
        let number = parser.parse_subexpr(self.power())?;
        Ok(Expr::UnaryOp {
            op,
            expr: Box::new(number),
        })
    }

    /// `a GLOB 'x*'` is whether a text is as a pattern of the shell says.
    fn parse_glob(
        &self,
        parser: &mut Parser<'_>,
        expr: Expr,
        negated: bool,
    ) -> Result<Expr, ParserError> {
        for _ in 0..=usize::from(negated) {
            parser.advance_token();
        }
        let pattern = parser.parse_subexpr(self.prec_value(Precedence::Like))?;
        let matches = called("glob_matches", [expr, pattern]);
        Ok(or_not(matches, negated))
    }

    /// `a IN [1, 2]`, and `a IN list`, is whether the list has `a`.
    fn parse_in_list(
        &self,
        parser: &mut Parser<'_>,
        expr: Expr,
        negated: bool,
    ) -> Result<Expr, ParserError> {
        for _ in 0..=usize::from(negated) {
            parser.advance_token();
        }
        let list = parser.parse_subexpr(self.prec_value(Precedence::Between))?;
        let has = match list {
            Expr::Array(list) => match has_one(expr, list.elem, negated)? {
                Has::Done(done) => return Ok(done),
                Has::ToNegate(has) => has,
            },
            list => called("array_has", [list, expr]),
        };
        Ok(or_not(has, negated))
    }
}

/// A truth value, or the other one.
fn or_not(value: Expr, negated: bool) -> Expr {
    match negated {
        true => Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr: Box::new(Expr::Nested(Box::new(value))),
        },
        false => value,
    }
}

/// Whether `GLOB` stands there, and a pattern behind it: otherwise it is a name.
fn is_glob(parser: &Parser<'_>, place: usize) -> bool {
    let is_word = match &parser.peek_nth_token_ref(place).token {
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case("glob"),
        _ => false,
    };
    is_word
        && match &parser.peek_nth_token_ref(place + 1).token {
            Token::Word(word) => !RESERVED_FOR_COLUMN_ALIAS.contains(&word.keyword),
            Token::SingleQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::Placeholder(_)
            | Token::LParen => true,
            _ => false,
        }
}

fn is_negated_glob(parser: &Parser<'_>) -> bool {
    let first = &parser.peek_nth_token_ref(0).token;
    matches!(first, Token::Word(word) if word.keyword == Keyword::NOT) && is_glob(parser, 1)
}

/// Whether a list has a value.
enum Has {
    Done(Expr),
    ToNegate(Expr),
}

/// What is null in the list is not looked for: `2 IN [1, NULL]` is false.
fn has_one(expr: Expr, mut list: Vec<Expr>, negated: bool) -> Result<Has, ParserError> {
    let has_nothing = list.is_empty();
    list.retain(|element| !is_null(element));
    if !list.is_empty() && list.iter().all(is_value) {
        return Ok(Has::Done(Expr::InList {
            expr: Box::new(expr),
            list,
            negated,
        }));
    }
    let text = match list.is_empty() {
        true if has_nothing => "(wanted IS NULL AND FALSE)",
        true => "(CASE WHEN wanted IS NOT NULL THEN FALSE END)",
        false => "array_has(list, wanted)",
    };
    let elements = Expr::Array(Array {
        elem: list,
        named: false,
    });
    let has = put(text, &["wanted", "list"], &[expr, elements]);
    let has = has.map_err(|error| ParserError::ParserError(error.message().to_owned()))?;
    Ok(Has::ToNegate(has))
}

/// Whether it is a value that is not null.
fn is_value(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(_)) && !is_null(expr)
}

fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if value.value == Value::Null)
}

/// The words, in which `**` is one.
pub(in crate::query) fn with_powers(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut words: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    for token in tokens {
        match words.last_mut() {
            Some(last) if last.token == Token::Mul && token.token == Token::Mul => {
                last.token = Token::CustomBinaryOperator(POWER.to_owned());
            }
            _ => words.push(token),
        }
    }
    words
}

/// The words, with another token for arrows that are not those of lambdas: these stand behind the names with which an argument of a function that takes lambdas begins.
pub(in crate::query) fn with_arrows_of_json(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    // The brackets that are open, and outside of all nothing.
    let mut open = vec![Bracket::default()];
    // What stood before, from the last word on.
    let (mut last, mut is_name_of_lambdas, mut is_columns) = (Before::Begin, false, false);
    for token in &mut tokens {
        let Some(bracket) = open.last_mut() else {
            break;
        };
        match &token.token {
            Token::Whitespace(_) => continue,
            Token::LParen => {
                let is_first = last == Before::Begin;
                open.push(Bracket {
                    takes_lambdas: is_name_of_lambdas,
                    // Without a list before it.
                    has_list: is_columns,
                    is_first,
                });
                last = Before::Begin;
            }
            Token::LBracket | Token::LBrace => {
                open.push(Bracket::default());
                last = Before::Begin;
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                let are_names = token.token == Token::RParen && bracket.is_first;
                if open.len() > 1 {
                    open.pop();
                }
                last = if are_names {
                    Before::Names
                } else {
                    Before::Others
                };
            }
            Token::Comma => {
                bracket.has_list |= bracket.takes_lambdas;
                last = Before::Begin;
            }
            Token::Arrow => {
                let is_of_lambda = bracket.has_list && last == Before::Names;
                if !is_of_lambda {
                    token.token = Token::CustomBinaryOperator(ARROW.to_owned());
                }
                last = Before::Others;
            }
            // Behind the name of a parameter there may be its type.
            Token::Word(_) if matches!(last, Before::Begin | Before::Names) => last = Before::Names,
            _ => last = Before::Others,
        }
        let name = match &token.token {
            Token::Word(word) => word.value.to_lowercase(),
            _ => String::new(),
        };
        is_name_of_lambdas = BY_LAMBDA.contains(&name.as_str());
        is_columns = name == each_column::COLUMNS;
    }
    tokens
}

/// A bracket that is open.
#[derive(Default)]
struct Bracket {
    /// Whether arguments of a function that takes lambdas stand in it.
    takes_lambdas: bool,
    /// Whether the first of them is over, which is a list.
    has_list: bool,
    /// Whether an argument begins with it.
    is_first: bool,
}

/// What stands before, since an argument began.
#[derive(PartialEq, Eq)]
enum Before {
    Begin,
    Names,
    Others,
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    #[test]
    fn arrows_of_lambdas_stand_where_arguments_begin() {
        let cases = [
            ("a -> 'k'", "j"),
            ("SELECT a, b -> 'k'", "j"),
            ("f(a, b -> 'k')", "j"),
            ("list_transform(l, x -> x + 1)", "l"),
            ("LIST_FILTER(l -> 'a', (x, i) -> x -> 'k' = i)", "jlj"),
            ("list_transform([a -> 'k', b -> 1], x INT -> x)", "jjl"),
            ("list_transform(f(x -> 'a'), x -> f(x -> 'a'))", "jlj"),
            ("list_reduce(l, (s, x) -> s, j -> 'a')", "ll"),
            ("(a) -> 'k'", "j"),
            ("t.a -> 'k' -> 0", "jj"),
            (") -> 'k'", "j"),
            ("COLUMNS(c -> c -> 'k' = 1), f(c -> 'k')", "ljj"),
        ];
        for (text, expected) in cases {
            let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location();
            let found = with_arrows_of_json(tokens.unwrap());
            let found = found.iter().filter_map(|token| match &token.token {
                Token::Arrow => Some('l'),
                Token::CustomBinaryOperator(_) => Some('j'),
                _ => None,
            });
            assert_eq!(found.collect::<String>(), expected, "{text}");
        }
    }
}
