//! What stands for what.
//!
//! Comes in: nothing. Goes out: the table of functions that are written with others. Never here: how they are put in their place.

/// A function that is written with others.
pub(in crate::query) struct Synonym {
    pub(in crate::query) name: &'static str,
    pub(in crate::query) kind: &'static str,
    /// What it takes: names that stand in the expression.
    pub(in crate::query) takes: &'static [&'static str],
    /// What it stands for: an expression, or, without arguments of its own, the name of a function.
    pub(super) stands_for: &'static str,
    pub(in crate::query) about: &'static str,
}

const SCALAR: &str = "scalar";
pub(super) const AGGREGATE: &str = "aggregate";

const fn synonym(
    name: &'static str,
    kind: &'static str,
    takes: &'static [&'static str],
    stands_for: &'static str,
    about: &'static str,
) -> Synonym {
    Synonym {
        name,
        kind,
        takes,
        stands_for,
        about,
    }
}

/// A part of a point in time.
const fn part(name: &'static str, stands_for: &'static str, about: &'static str) -> Synonym {
    synonym(name, SCALAR, &["moment"], stands_for, about)
}

#[rustfmt::skip]
pub(in crate::query) const SYNONYMS: &[Synonym] = &[
    synonym("add", SCALAR, &["number", "other"], "(number + other)", "The sum of two numbers."),
    synonym("aggregate", SCALAR, &["list", "name"], "", "What an aggregate makes of the elements of a list: 'sum', 'avg', 'min', 'max', 'count', 'median', 'mode', 'stddev', 'variance', 'bool_and', 'bit_or', 'histogram' and others, or 'string_agg' with a separator."),
    synonym("ago", SCALAR, &["span"], "(now() - span)", "The instant so long before the statement began."),
    synonym("apply", SCALAR, &[], "list_transform", "A list of what a lambda makes of each element."),
    synonym("approx_count_distinct", AGGREGATE, &[], "approx_distinct", "About how many different values there are."),
    synonym("approx_quantile", AGGREGATE, &[], "approx_percentile_cont", "About the value that so large a share of the values is not greater than."),
    synonym("arbitrary", AGGREGATE, &[], "first_value", "The value of some row."),
    synonym("arg_max", AGGREGATE, &["value", "by"], LATEST, "The value of a row with the largest `by`; rows where one of both is null are left out."),
    synonym("arg_max_null", AGGREGATE, &["value", "by"], "first_value(value ORDER BY by DESC) FILTER (WHERE by IS NOT NULL)", "The value of a row with the largest `by`, also where it is null."),
    synonym("arg_min", AGGREGATE, &["value", "by"], EARLIEST, "The value of a row with the least `by`; rows where one of both is null are left out."),
    synonym("arg_min_null", AGGREGATE, &["value", "by"], "first_value(value ORDER BY by ASC) FILTER (WHERE by IS NOT NULL)", "The value of a row with the least `by`, also where it is null."),
    synonym("argmax", AGGREGATE, &["value", "by"], LATEST, "The value of a row with the largest `by`; rows where one of both is null are left out."),
    synonym("argmin", AGGREGATE, &["value", "by"], EARLIEST, "The value of a row with the least `by`; rows where one of both is null are left out."),
    synonym("array_aggr", SCALAR, &["list", "name"], "", "What an aggregate makes of the elements of a list: 'sum', 'avg', 'min', 'max', 'count', 'median', 'mode', 'stddev', 'variance', 'bool_and', 'bit_or', 'histogram' and others, or 'string_agg' with a separator."),
    synonym("array_aggregate", SCALAR, &["list", "name"], "", "What an aggregate makes of the elements of a list: 'sum', 'avg', 'min', 'max', 'count', 'median', 'mode', 'stddev', 'variance', 'bool_and', 'bit_or', 'histogram' and others, or 'string_agg' with a separator."),
    synonym("array_apply", SCALAR, &[], "list_transform", "A list of what a lambda makes of each element."),
    synonym("array_negative_dot_product", SCALAR, &["list", "other"], "(- list_dot_product(list, other))", "The inner product of two lists of numbers, with the other sign."),
    synonym("array_negative_inner_product", SCALAR, &["list", "other"], "(- list_dot_product(list, other))", "The inner product of two lists of numbers, with the other sign."),
    synonym("array_reverse_sort", SCALAR, &["list"], "array_sort(list, 'DESC', 'NULLS LAST')", "The elements of a list, the largest first."),
    synonym("array_unique", SCALAR, &["list"], "CASE WHEN list IS NOT NULL THEN CAST(coalesce(array_length(array_distinct(list_filter(list, x -> x IS NOT NULL))), 0) AS BIGINT) END", "How many different elements a list has, without nulls."),
    synonym("array_value", SCALAR, &[], "make_array", "A list of values."),
    synonym("array_zip", SCALAR, &[], "list_zip", "A list of structs of the elements of several lists."),
    synonym("base64", SCALAR, &["bytes"], "encode(bytes, 'base64pad')", "Bytes as a text of base 64."),
    synonym("ceiling", SCALAR, &[], "ceil", "The least whole number that is not less."),
    part("century", "CAST(date_part('century', moment) AS BIGINT)", "The century, the first being 1."),
    synonym("constant_or_null", SCALAR, &["value", "other"], "CASE WHEN other IS NOT NULL THEN value END", "A value, or null where the other one is null."),
    synonym("count_if", AGGREGATE, &["condition"], COUNTED, "The number of rows for which a condition is true."),
    synonym("countif", AGGREGATE, &["condition"], COUNTED, "The number of rows for which a condition is true."),
    synonym("current_database", SCALAR, &[], "", "The name of the catalog of tables."),
    synonym("current_schema", SCALAR, &[], "", "The name of the schema of tables that are named without one."),
    synonym("date_add", SCALAR, &["moment", "span"], "(moment + span)", "A point in time that is so much later."),
    synonym("date_diff", SCALAR, &["part", "begin", "end"], "", "How many borders of a part of time lie between two points, or whole weeks: 'century', 'decade', 'year', 'quarter', 'month', 'week', 'day', 'hour', 'minute', 'second', 'millisecond' or 'microsecond'."),
    synonym("datediff", SCALAR, &["part", "begin", "end"], "", "How many borders of a part of time lie between two points, or whole weeks: 'century', 'decade', 'year', 'quarter', 'month', 'week', 'day', 'hour', 'minute', 'second', 'millisecond' or 'microsecond'."),
    part("day", "CAST(date_part('day', moment) AS BIGINT)", "The day of the month."),
    part("dayname", "to_char(moment, '%A')", "The English name of the day of the week."),
    part("dayofmonth", "CAST(date_part('day', moment) AS BIGINT)", "The day of the month."),
    part("dayofweek", "CAST(date_part('dow', moment) AS BIGINT)", "The day of the week, 0 being Sunday."),
    part("dayofyear", "CAST(date_part('doy', moment) AS BIGINT)", "The day of the year."),
    part("days_in_month", "CAST(date_part('day', date_trunc('month', moment) + INTERVAL '1 month' - INTERVAL '1 day') AS BIGINT)", "How many days the month has."),
    part("decade", "CAST(date_part('decade', moment) AS BIGINT)", "The year by ten."),
    synonym("editdist3", SCALAR, &[], "levenshtein", "How many letters must be put in, taken away or changed to make one text of another."),
    synonym("entropy", AGGREGATE, &["value"], "coalesce(list_entropy(array_agg(value) FILTER (WHERE value IS NOT NULL)), 0)", "How much each value says in bits, by how often it is there."),
    part("epoch", "CAST(date_part('epoch', moment) AS DOUBLE)", "The seconds since 1970-01-01."),
    part("epoch_ns", "CAST(arrow_cast(moment + INTERVAL '0 seconds', 'Timestamp(Nanosecond, Some(\"UTC\"))') AS BIGINT)", "The nanoseconds since 1970-01-01."),
    part("epoch_us", "CAST(arrow_cast(date_trunc('microsecond', moment + INTERVAL '0 seconds'), 'Timestamp(Microsecond, Some(\"UTC\"))') AS BIGINT)", "The microseconds since 1970-01-01."),
    part("era", "CASE WHEN date_part('year', moment) > 0 THEN CAST(1 AS BIGINT) WHEN date_part('year', moment) <= 0 THEN CAST(0 AS BIGINT) END", "1 from the year 1 on, 0 before it."),
    synonym("even", SCALAR, &["number"], "CASE WHEN number < 0 THEN floor(number / CAST(2 AS DOUBLE)) * 2 ELSE ceil(number / CAST(2 AS DOUBLE)) * 2 END", "The next even number away from zero."),
    synonym("favg", AGGREGATE, &[], "avg", "The mean, from an exact sum."),
    synonym("fdiv", SCALAR, &["number", "divisor"], "floor(CAST(number AS DOUBLE) / CAST(divisor AS DOUBLE))", "The whole part of a quotient of floats, rounded down."),
    synonym("filter", SCALAR, &[], "list_filter", "The elements of a list for which a lambda is true."),
    synonym("first", AGGREGATE, &[], "first_value", "The value of the first row."),
    synonym("fmod", SCALAR, &["number", "divisor"], "(CAST(number AS DOUBLE) - divisor * floor(CAST(number AS DOUBLE) / CAST(divisor AS DOUBLE)))", "What is left of such a quotient; it has the sign of the divisor."),
    synonym("from_base64", SCALAR, &["text"], "decode(text, 'base64')", "The bytes of a text of base 64."),
    synonym("from_hex", SCALAR, &["text"], "decode(text, 'hex')", "The bytes of a text of hexadecimal digits."),
    synonym("fsum", AGGREGATE, &["number"], "sum(CAST(number AS DOUBLE))", "The sum of floats, exact and rounded once."),
    synonym("gen_random_uuid", SCALAR, &[], "uuid", "A random UUID."),
    synonym("get_current_timestamp", SCALAR, &[], "now", "The instant at which the statement began."),
    synonym("greatest_common_divisor", SCALAR, &[], "gcd", "The largest number that divides both."),
    synonym("group_concat", AGGREGATE, &[], "string_agg", "Texts one after the other, with another between them."),
    synonym("grouping_id", AGGREGATE, &[], "grouping", "Which of the keys a row of GROUP BY ROLLUP, CUBE or GROUPING SETS is not grouped by, as bits."),
    synonym("histogram", AGGREGATE, &["value"], "list_histogram(array_agg(value) FILTER (WHERE value IS NOT NULL))", "A map of the different values and how often each is there."),
    part("hour", "CAST(date_part('hour', moment) AS BIGINT)", "The hour."),
    synonym("if", SCALAR, &["condition", "yes", "no"], "CASE WHEN condition THEN yes ELSE no END", "One of two values."),
    synonym("isfinite", SCALAR, &["number"], "(abs(CAST(number AS DOUBLE)) < CAST('inf' AS DOUBLE))", "Whether a number is neither infinite nor NaN."),
    synonym("isinf", SCALAR, &["number"], "(abs(CAST(number AS DOUBLE)) = CAST('inf' AS DOUBLE))", "Whether a number is infinite."),
    part("isodow", "CAST(date_part('isodow', moment) AS BIGINT)", "The day of the week, 1 being Monday."),
    part("isoyear", "CAST(date_part('isoyear', moment) AS BIGINT)", "The year that the week belongs to, by ISO 8601."),
    synonym("json_array_length", SCALAR, &[], "json_length", "How many values a list or an object of JSON has, at a key or a path."),
    synonym("json_exists", SCALAR, &[], "json_contains", "Whether a text of JSON has a key or a path."),
    synonym("json_extract", SCALAR, &[], "json_get_json", "The JSON at a key or a path, as `->`."),
    synonym("json_extract_path", SCALAR, &[], "json_get_json", "The JSON at keys, each within the one before."),
    synonym("json_extract_path_text", SCALAR, &[], "json_as_text", "The text at keys, each within the one before."),
    synonym("json_extract_string", SCALAR, &[], "json_as_text", "The text at a key or a path, as `->>`."),
    synonym("json_group_array", AGGREGATE, &["value"], "to_json(array_agg(value))", "A list of the values of all rows, as a text of JSON."),
    synonym("json_group_object", AGGREGATE, &["name", "value"], "__json_pairs(array_agg(named_struct('name', name, 'value', value)))", "An object of the names and values of all rows, as a text of JSON."),
    part("julian", "(CAST(date_part('epoch', moment) AS DOUBLE) / 86400 + 2440588)", "The Julian day; its fraction is that of the day since midnight."),
    synonym("kahan_sum", AGGREGATE, &["number"], "sum(CAST(number AS DOUBLE))", "The sum of floats, exact and rounded once."),
    synonym("last", AGGREGATE, &[], "last_value", "The value of the last row."),
    part("last_day", "CAST(date_trunc('month', moment) + INTERVAL '1 month' - INTERVAL '1 day' AS DATE)", "The last day of the month."),
    synonym("lcase", SCALAR, &[], "lower", "A text in small letters."),
    synonym("least_common_multiple", SCALAR, &[], "lcm", "The least number that both divide."),
    synonym("list", AGGREGATE, &[], "array_agg", "A list of all values."),
    synonym("list_aggr", SCALAR, &["list", "name"], "", "What an aggregate makes of the elements of a list: 'sum', 'avg', 'min', 'max', 'count', 'median', 'mode', 'stddev', 'variance', 'bool_and', 'bit_or', 'histogram' and others, or 'string_agg' with a separator."),
    synonym("list_aggregate", SCALAR, &["list", "name"], "", "What an aggregate makes of the elements of a list: 'sum', 'avg', 'min', 'max', 'count', 'median', 'mode', 'stddev', 'variance', 'bool_and', 'bit_or', 'histogram' and others, or 'string_agg' with a separator."),
    synonym("list_apply", SCALAR, &[], "list_transform", "A list of what a lambda makes of each element."),
    synonym("list_approx_count_distinct", SCALAR, &["list"], "CASE WHEN list IS NOT NULL THEN CAST(coalesce(array_length(array_distinct(list_filter(list, x -> x IS NOT NULL))), 0) AS BIGINT) END", "How many different elements a list has, without nulls; they are counted."),
    synonym("list_count", SCALAR, &["list"], "CASE WHEN list IS NOT NULL THEN CAST(coalesce(array_length(list_filter(list, x -> x IS NOT NULL)), 0) AS BIGINT) END", "How many elements of a list are not null."),
    synonym("list_first", SCALAR, &["list"], "array_element(list, 1)", "The first element of a list."),
    synonym("list_last", SCALAR, &["list"], "array_element(list, -1)", "The last element of a list."),
    synonym("list_min", SCALAR, &[], "array_min", "The least element of a list."),
    synonym("list_negative_dot_product", SCALAR, &["list", "other"], "(- list_dot_product(list, other))", "The inner product of two lists of numbers, with the other sign."),
    synonym("list_negative_inner_product", SCALAR, &["list", "other"], "(- list_dot_product(list, other))", "The inner product of two lists of numbers, with the other sign."),
    synonym("list_pack", SCALAR, &[], "make_array", "A list of values."),
    synonym("list_reverse_sort", SCALAR, &["list"], "array_sort(list, 'DESC', 'NULLS LAST')", "The elements of a list, the largest first."),
    synonym("list_sem", SCALAR, &["list"], "(list_stddev_pop(list) / sqrt(list_count(list)))", "The standard error of the mean of the elements of a list."),
    synonym("list_unique", SCALAR, &["list"], "CASE WHEN list IS NOT NULL THEN CAST(coalesce(array_length(array_distinct(list_filter(list, x -> x IS NOT NULL))), 0) AS BIGINT) END", "How many different elements a list has, without nulls."),
    synonym("list_value", SCALAR, &[], "make_array", "A list of values."),
    synonym("listagg", AGGREGATE, &[], "string_agg", "Texts one after the other, with another between them."),
    synonym("mad", AGGREGATE, &["number"], "list_mad(array_agg(number) FILTER (WHERE number IS NOT NULL))", "The median of how far numbers lie from their median."),
    synonym("make_timestamp", SCALAR, &["year", "month", "day", "hour", "minute", "seconds"], MADE, "A timestamp of its parts."),
    synonym("make_timestamp_ms", SCALAR, &["number"], "CAST(arrow_cast(CAST(number AS BIGINT), 'Timestamp(Millisecond, None)') AS TIMESTAMP)", "The timestamp so many milliseconds after 1970-01-01."),
    synonym("make_timestamp_ns", SCALAR, &["number"], "arrow_cast(CAST(number AS BIGINT), 'Timestamp(Nanosecond, None)')", "The timestamp so many nanoseconds after 1970-01-01."),
    synonym("map_contains", SCALAR, &["map", "key"], "array_has(map_keys(map), key)", "Whether a map has a key."),
    synonym("map_contains_entry", SCALAR, &["map", "key", "value"], "CASE WHEN map IS NOT NULL THEN array_has(map_extract(map, key), value) END", "Whether a map has a key with a value."),
    synonym("map_contains_value", SCALAR, &["map", "value"], "array_has(map_values(map), value)", "Whether a map has a value."),
    synonym("map_extract_value", SCALAR, &["map", "key"], "array_element(map_extract(map, key), 1)", "The value of a key of a map."),
    synonym("max_by", AGGREGATE, &["value", "by"], LATEST, "The value of a row with the largest `by`; rows where one of both is null are left out."),
    part("microsecond", "CAST(date_part('microsecond', moment) AS BIGINT)", "The seconds of the minute, in microseconds."),
    part("millennium", "CAST(date_part('millennium', moment) AS BIGINT)", "The millennium, the first being 1."),
    part("millisecond", "CAST(date_part('millisecond', moment) AS BIGINT)", "The seconds of the minute, in milliseconds."),
    synonym("min_by", AGGREGATE, &["value", "by"], EARLIEST, "The value of a row with the least `by`; rows where one of both is null are left out."),
    part("minute", "CAST(date_part('minute', moment) AS BIGINT)", "The minute."),
    synonym("mod", SCALAR, &["number", "divisor"], "(number % divisor)", "What is left of a division."),
    part("month", "CAST(date_part('month', moment) AS BIGINT)", "The month of the year."),
    part("monthname", "to_char(moment, '%B')", "The English name of the month."),
    synonym("multiply", SCALAR, &["number", "other"], "(number * other)", "The product of two numbers."),
    part("nanosecond", "CAST(date_part('nanosecond', moment) AS BIGINT)", "The seconds of the minute, in nanoseconds."),
    synonym("ord", SCALAR, &[], "ascii", "The number of the first letter."),
    synonym("prefix", SCALAR, &[], "starts_with", "Whether a text begins with another."),
    synonym("quantile", AGGREGATE, &[], "quantile_disc", "The first value that so large a share of the values is not greater than."),
    part("quarter", "CAST(date_part('quarter', moment) AS BIGINT)", "The quarter of the year."),
    synonym("regexp_extract", SCALAR, &["text", "pattern", "group"], EXTRACTED, "What a group of a regular expression matches, or without one the whole; an empty text where nothing does."),
    synonym("regexp_full_match", SCALAR, &["text", "pattern"], "regexp_like(text, '^(?:' || pattern || ')$')", "Whether a regular expression matches the whole of a text."),
    synonym("regexp_matches", SCALAR, &[], "regexp_like", "Whether a regular expression matches a part of a text."),
    synonym("regexp_split_to_table", SCALAR, &["text", "pattern"], "unnest(regexp_split_to_array(text, pattern))", "What lies between the places that a regular expression matches in a text, in a row each."),
    part("second", "CAST(date_part('second', moment) AS BIGINT)", "The whole second."),
    synonym("sem", AGGREGATE, &["number"], "(stddev_pop(number) / sqrt(count(number)))", "The standard error of the mean."),
    synonym("split", SCALAR, &["text", "separator"], SPLIT, "A list of what lies between separators."),
    synonym("str_split", SCALAR, &["text", "separator"], SPLIT, "A list of what lies between separators."),
    synonym("str_split_regex", SCALAR, &[], "regexp_split_to_array", "A list of what lies between the places that a regular expression matches in a text."),
    synonym("strftime", SCALAR, &["moment", "format"], "to_char(moment, regexp_replace(format, '(^|[^%])%f', '\\1%6f', 'g'))", "The text of a point in time by a format such as '%Y-%m-%d'."),
    synonym("string_split", SCALAR, &["text", "separator"], SPLIT, "A list of what lies between separators."),
    synonym("string_split_regex", SCALAR, &[], "regexp_split_to_array", "A list of what lies between the places that a regular expression matches in a text."),
    synonym("strlen", SCALAR, &[], "octet_length", "The bytes of a text."),
    synonym("struct_extract", SCALAR, &[], "get_field", "A field of a struct."),
    synonym("struct_insert", SCALAR, &["struct", "name := value"], "struct_concat", "A struct with more fields."),
    synonym("struct_pack", SCALAR, &["name := value"], "", "A struct of fields with names."),
    synonym("struct_update", SCALAR, &["struct", "name := value"], "struct_merge", "A struct with other values in some fields, and more fields."),
    synonym("subtract", SCALAR, &["number", "other"], "(number - other)", "The difference of two numbers."),
    synonym("suffix", SCALAR, &[], "ends_with", "Whether a text ends with another."),
    synonym("sumkahan", AGGREGATE, &["number"], "sum(CAST(number AS DOUBLE))", "The sum of floats, exact and rounded once."),
    synonym("to_base64", SCALAR, &["bytes"], "encode(bytes, 'base64pad')", "Bytes as a text of base 64."),
    synonym("to_centuries", SCALAR, &["number"], "(number * INTERVAL '1200 months')", "An interval of centuries."),
    synonym("to_days", SCALAR, &["number"], "(number * INTERVAL '1 day')", "An interval of days."),
    synonym("to_decades", SCALAR, &["number"], "(number * INTERVAL '120 months')", "An interval of decades."),
    synonym("to_hours", SCALAR, &["number"], "(number * INTERVAL '1 hour')", "An interval of hours."),
    synonym("to_microseconds", SCALAR, &["number"], "(number * INTERVAL '1 microsecond')", "An interval of microseconds."),
    synonym("to_millennia", SCALAR, &["number"], "(number * INTERVAL '12000 months')", "An interval of millennia."),
    synonym("to_milliseconds", SCALAR, &["number"], "(number * INTERVAL '1 millisecond')", "An interval of milliseconds."),
    synonym("to_minutes", SCALAR, &["number"], "(number * INTERVAL '1 minute')", "An interval of minutes."),
    synonym("to_months", SCALAR, &["number"], "(number * INTERVAL '1 month')", "An interval of months."),
    synonym("to_quarters", SCALAR, &["number"], "(number * INTERVAL '3 months')", "An interval of quarters."),
    synonym("to_seconds", SCALAR, &["number"], "(number * INTERVAL '1 second')", "An interval of seconds."),
    synonym("to_weeks", SCALAR, &["number"], "(number * INTERVAL '7 days')", "An interval of weeks."),
    synonym("to_years", SCALAR, &["number"], "(number * INTERVAL '12 months')", "An interval of years."),
    synonym("transaction_timestamp", SCALAR, &[], "now", "The instant at which the statement began."),
    synonym("ucase", SCALAR, &[], "upper", "A text in capital letters."),
    synonym("unhex", SCALAR, &["text"], "decode(text, 'hex')", "The bytes of a text of hexadecimal digits."),
    synonym("unicode", SCALAR, &[], "ascii", "The number of the first letter."),
    synonym("wavg", AGGREGATE, &["value", "weight"], "(sum(CAST(value AS DOUBLE) * weight) / sum(CAST(weight AS DOUBLE)) FILTER (WHERE value IS NOT NULL))", "The mean of values by their weights."),
    part("week", "CAST(date_part('week', moment) AS BIGINT)", "The week of the year, by ISO 8601."),
    part("weekday", "CAST(date_part('dow', moment) AS BIGINT)", "The day of the week, 0 being Sunday."),
    part("weekofyear", "CAST(date_part('week', moment) AS BIGINT)", "The week of the year, by ISO 8601."),
    synonym("weighted_avg", AGGREGATE, &["value", "weight"], "(sum(CAST(value AS DOUBLE) * weight) / sum(CAST(weight AS DOUBLE)) FILTER (WHERE value IS NOT NULL))", "The mean of values by their weights."),
    synonym("xor", SCALAR, &["number", "other"], "(number XOR other)", "The bits that one of both numbers has."),
    part("year", "CAST(date_part('year', moment) AS BIGINT)", "The year."),
    part("yearweek", "CAST(date_part('isoyear', moment) * 100 + date_part('week', moment) AS BIGINT)", "Year and week by ISO 8601, as one number: 201301."),
];

/// A text, so that parts out of range are refused.
const MADE: &str = "CAST(CAST(make_date(year, month, day) AS VARCHAR) || ' ' || CAST(hour AS VARCHAR) || ':' || CAST(minute AS VARCHAR) || ':' || CAST(seconds AS VARCHAR) AS TIMESTAMP)";
/// Of the groups that `regexp_match` gives, those that match nothing are left out.
const EXTRACTED: &str = "CASE WHEN regexp_like(text, pattern) THEN regexp_replace(text, '(?s)^.*?((?-s:' || pattern || ')).*$', '\\' || CAST(group + 1 AS VARCHAR)) WHEN text IS NOT NULL AND pattern IS NOT NULL THEN '' END";
/// The engine makes no part of an empty text.
const SPLIT: &str = "CASE WHEN text = '' THEN make_array('') WHEN separator = '' THEN regexp_split_to_array(text, '') WHEN separator IS NULL AND text IS NOT NULL THEN make_array(text) ELSE string_to_array(text, separator) END";
/// `make_timestamp` of one number.
pub(super) const OF_MICROSECONDS: &str =
    "arrow_cast(CAST(number AS BIGINT), 'Timestamp(Microsecond, None)')";
const COUNTED: &str = "count(*) FILTER (WHERE condition)";
const LATEST: &str =
    "first_value(value ORDER BY by DESC) FILTER (WHERE value IS NOT NULL AND by IS NOT NULL)";
const EARLIEST: &str =
    "first_value(value ORDER BY by ASC) FILTER (WHERE value IS NOT NULL AND by IS NOT NULL)";

/// What an aggregate of a list stands for, by the name of the aggregate.
pub(super) const OF_LIST: &[(&str, &str)] = &[
    ("any_value", "list_any_value(list)"),
    (
        "approx_count_distinct",
        "CASE WHEN list IS NOT NULL THEN CAST(coalesce(array_length(array_distinct(list_filter(list, x -> x IS NOT NULL))), 0) AS BIGINT) END",
    ),
    ("avg", "list_avg(list)"),
    ("bit_and", "list_bit_and(list)"),
    ("bit_or", "list_bit_or(list)"),
    ("bit_xor", "list_bit_xor(list)"),
    ("bool_and", "list_bool_and(list)"),
    ("bool_or", "list_bool_or(list)"),
    (
        "count",
        "CASE WHEN list IS NOT NULL THEN CAST(coalesce(array_length(list_filter(list, x -> x IS NOT NULL)), 0) AS BIGINT) END",
    ),
    ("entropy", "list_entropy(list)"),
    ("first", "array_element(list, 1)"),
    ("histogram", "list_histogram(list)"),
    ("kurtosis", "list_kurtosis(list)"),
    ("kurtosis_pop", "list_kurtosis_pop(list)"),
    ("last", "array_element(list, -1)"),
    ("mad", "list_mad(list)"),
    ("max", "array_max(list)"),
    ("mean", "list_avg(list)"),
    ("median", "list_median(list)"),
    ("min", "array_min(list)"),
    ("mode", "list_mode(list)"),
    ("product", "list_product(list)"),
    ("sem", "(list_stddev_pop(list) / sqrt(list_count(list)))"),
    ("skewness", "list_skewness(list)"),
    ("stddev", "list_stddev_samp(list)"),
    ("stddev_pop", "list_stddev_pop(list)"),
    ("stddev_samp", "list_stddev_samp(list)"),
    ("string_agg", "array_to_string(list, separator)"),
    ("sum", "list_sum(list)"),
    ("var_pop", "list_var_pop(list)"),
    ("var_samp", "list_var_samp(list)"),
    ("variance", "list_var_samp(list)"),
];

/// The largest, or the least, values of several rows.
pub(super) const LARGEST: &str =
    "array_slice(array_agg(value ORDER BY value DESC) FILTER (WHERE value IS NOT NULL), 1, number)";
pub(super) const LEAST: &str =
    "array_slice(array_agg(value ORDER BY value ASC) FILTER (WHERE value IS NOT NULL), 1, number)";
/// Those of the rows with the largest, or the least, `by`.
pub(super) const OF_LARGEST: &str = "array_slice(array_agg(value ORDER BY by DESC) FILTER (WHERE value IS NOT NULL AND by IS NOT NULL), 1, number)";
pub(super) const OF_LEAST: &str = "array_slice(array_agg(value ORDER BY by ASC) FILTER (WHERE value IS NOT NULL AND by IS NOT NULL), 1, number)";

/// What `date_diff` stands for, by the part.
pub(super) const BETWEEN: &[(&str, &str)] = &[
    (
        "year",
        "CAST(date_part('year', end) - date_part('year', begin) AS BIGINT)",
    ),
    (
        "decade",
        "CAST(date_part('year', end) / 10 - date_part('year', begin) / 10 AS BIGINT)",
    ),
    (
        "century",
        "CAST(date_part('year', end) / 100 - date_part('year', begin) / 100 AS BIGINT)",
    ),
    (
        "quarter",
        "CAST(date_part('year', end) * 4 + date_part('quarter', end) - date_part('year', begin) * 4 - date_part('quarter', begin) AS BIGINT)",
    ),
    (
        "month",
        "CAST(date_part('year', end) * 12 + date_part('month', end) - date_part('year', begin) * 12 - date_part('month', begin) AS BIGINT)",
    ),
    ("week", "((CAST(end AS DATE) - CAST(begin AS DATE)) / 7)"),
    ("day", "(CAST(end AS DATE) - CAST(begin AS DATE))"),
    (
        "hour",
        "CAST(date_part('epoch', date_trunc('hour', end) - date_trunc('hour', begin)) / 3600 AS BIGINT)",
    ),
    (
        "minute",
        "CAST(date_part('epoch', date_trunc('minute', end) - date_trunc('minute', begin)) / 60 AS BIGINT)",
    ),
    (
        "second",
        "CAST(date_part('epoch', date_trunc('second', end) - date_trunc('second', begin)) AS BIGINT)",
    ),
    (
        "millisecond",
        "(CAST(arrow_cast(date_trunc('millisecond', end + INTERVAL '0 seconds'), 'Timestamp(Millisecond, Some(\"UTC\"))') AS BIGINT) - CAST(arrow_cast(date_trunc('millisecond', begin + INTERVAL '0 seconds'), 'Timestamp(Millisecond, Some(\"UTC\"))') AS BIGINT))",
    ),
    (
        "microsecond",
        "(CAST(arrow_cast(date_trunc('microsecond', end + INTERVAL '0 seconds'), 'Timestamp(Microsecond, Some(\"UTC\"))') AS BIGINT) - CAST(arrow_cast(date_trunc('microsecond', begin + INTERVAL '0 seconds'), 'Timestamp(Microsecond, Some(\"UTC\"))') AS BIGINT))",
    ),
];
