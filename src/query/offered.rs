//! What SQL offers here, for those who ask a server: its words, its functions by what they are about.
//!
//! Comes in: the functions of a session. Goes out: names. Never here: what they do.

use super::options::QueryOptions;
use super::session::Session;

/// The words that have a meaning in the statements that are allowed here, sorted, with blanks between. The parser knows more, of statements that are refused.
pub(crate) const KEYWORDS: &str = "\
    ALL ANALYZE AND ANTI ANY ARRAY AS ASC ASOF AT BETWEEN BIGINT BOOLEAN BY BYTEA CASE CAST COLLATE CREATE CROSS CUBE CURRENT CURRENT_DATE CURRENT_TIME \
    CURRENT_TIMESTAMP DATE DAY DECIMAL DESC DESCRIBE DISTINCT DOUBLE DROP ELSE END ESCAPE EXCEPT EXCLUDE EXISTS EXPLAIN \
    EXTRACT FALSE FILTER FIRST FLOAT FOLLOWING FROM FULL FUNCTIONS GLOB GROUP GROUPING GROUPS HAVING HOUR IF IGNORE ILIKE IN INNER INTEGER \
    INTERSECT INTERVAL IS JOIN LAST LATERAL LEFT LIKE LIMIT MINUTE MONTH NATURAL NOT NULL NULLS NUMERIC OFFSET ON OR ORDER OUTER OVER \
    PARTITION PIVOT POSITION PRECEDING PRECISION QUALIFY RANGE REAL RECURSIVE RENAME REPLACE RESPECT RIGHT ROLLUP ROW ROWS SECOND SELECT SEMI SETS SHOW \
    SIMILAR SMALLINT SOME SUBSTRING SUMMARIZE TABLE TABLES TABLESAMPLE TEXT THEN TIME TIMESTAMP TINYINT TO TRIM TRUE TRY_CAST UNBOUNDED UNION UNNEST UNPIVOT USING \
    VALUES VARCHAR VIEW WHEN WHERE WINDOW WITH WITHIN YEAR ZONE";

/// What functions are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Numbers,
    Texts,
    Times,
    /// Types, missing values, the engine itself.
    System,
}

impl Subject {
    /// As the documentation of the engine orders its functions; `None` for those of lists, structs and maps.
    fn of(section: &str) -> Option<Self> {
        match section {
            "Math Functions" => Some(Self::Numbers),
            "String Functions"
            | "Binary String Functions"
            | "Regular Expression Functions"
            | "Hashing Functions" => Some(Self::Texts),
            "Time and Date Functions" => Some(Self::Times),
            "Conditional Functions" | "Other Functions" => Some(Self::System),
            _ => None,
        }
    }
}

impl Session {
    /// The names of the functions of the engine about something that are called for single rows, sorted; each function under all its names.
    pub(crate) fn functions_about(&self, subject: Subject) -> Vec<String> {
        let state = self.state(&QueryOptions::default());
        let about = state.scalar_functions().iter().filter(|(_, function)| {
            let section = function.documentation().map(|known| &known.doc_section);
            section.and_then(|section| Subject::of(section.label)) == Some(subject)
        });
        let mut names: Vec<String> = about.map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::keywords::ALL_KEYWORDS;

    use super::*;
    use crate::query::SessionOptions;

    #[test]
    fn words_are_sorted_and_those_of_the_parser() {
        let words: Vec<&str> = KEYWORDS.split(' ').collect();
        assert!(words.is_sorted());
        for word in words {
            // Those that the parser reads as names.
            let is_ours = ["GLOB", "SUMMARIZE"].contains(&word);
            assert!(is_ours != ALL_KEYWORDS.contains(&word), "{word}");
        }
    }

    #[test]
    fn functions_are_found_by_what_they_are_about() {
        let session = Session::try_new(&SessionOptions::default()).unwrap();
        for (subject, some) in [
            (Subject::Numbers, ["abs", "power", "round"]),
            // Of these, partgrid has some of its own.
            (Subject::Texts, ["repeat", "upper", "regexp_replace"]),
            (Subject::Times, ["date_part", "date_trunc", "now"]),
            (Subject::System, ["arrow_typeof", "coalesce", "nullif"]),
        ] {
            let found = session.functions_about(subject);
            assert!(found.is_sorted());
            for name in some {
                assert!(
                    found.iter().any(|known| known == name),
                    "{subject:?}: {name}"
                );
            }
        }
    }
}
