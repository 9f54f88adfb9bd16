//! Hints of the library -> hints in the words of the command.
//!
//! Comes in: an error and the verb that met it. Goes out: the same error; where its hint names arguments of functions, it names options instead, and only those that
//! the verb has. Never here: new remedies.

use clap::CommandFactory;

use crate::error::Error;

/// What a hint of the library says, the option that it is about, what a verb with that option says, and one without it.
const WORDS: [(&str, &str, &str, &str); 21] = [
    (
        "raise memory_limit, or ask for fewer rows or columns",
        "memory-limit",
        "raise --memory-limit, or ask for fewer rows or columns",
        "ask for fewer rows or columns",
    ),
    (
        "raise spill_limit or memory_limit, or ask for fewer rows or columns",
        "spill-limit",
        "raise --spill-limit or --memory-limit, or ask for fewer rows or columns",
        "ask for fewer rows or columns",
    ),
    (
        "a session or a query takes timeout, memory_limit and others when it is made",
        "timeout",
        "the command takes --timeout, --memory-limit and others",
        "`partgrid sql` takes --timeout, --memory-limit and others",
    ),
    (
        "raise timeout",
        "timeout",
        "raise --timeout",
        "give it more time",
    ),
    (
        "raise memory_limit, give spill_to= a folder, ",
        "spill-to",
        "raise --memory-limit, give --spill-to a folder, ",
        "",
    ),
    (
        "load fewer columns, or choose a smaller tile_rows",
        "tile-rows",
        "load fewer --columns, or choose a smaller --tile-rows",
        "write the columns that are needed with `partgrid load --columns`, which takes --memory-limit and --spill-to",
    ),
    (
        "schema_evolution=\"union\" fills missing columns with nulls, \"widen\" also widens types",
        "schema-evolution",
        "--schema-evolution union fills missing columns with nulls, --schema-evolution widen also widens types",
        "`partgrid load --schema-evolution union` fills missing columns with nulls, `--schema-evolution widen` also widens types",
    ),
    (
        "schema_evolution=\"widen\"",
        "schema-evolution",
        "--schema-evolution widen",
        "`partgrid load --schema-evolution widen`",
    ),
    (
        "hive_partitioning=False",
        "no-hive",
        "--no-hive",
        "`partgrid load --no-hive`",
    ),
    (
        "overwrite=True (`--overwrite`)",
        "overwrite",
        "--overwrite",
        "--overwrite",
    ),
    (
        "if_exists=\"replace\" replaces it",
        "replace",
        "--replace replaces it",
        "`partgrid load --replace` replaces it",
    ),
    (
        "spill_to must be",
        "spill-to",
        "--spill-to must be",
        "--spill-to must be",
    ),
    (
        "resume must be",
        "resume",
        "--resume must be",
        "--resume must be",
    ),
    (
        ", or give them as storage_options",
        "storage-option",
        ", or give them with --storage-option",
        "",
    ),
    (
        "storage_options={\"anonymous\": \"true\"}",
        "storage-option",
        "--storage-option anonymous=true",
        "`partgrid copy --storage-option anonymous=true`",
    ),
    (
        "{\"requester_pays\": \"true\"}",
        "storage-option",
        "--storage-option requester_pays=true",
        "`partgrid copy --storage-option requester_pays=true`",
    ),
    (
        "AWS_REGION or `region`",
        "storage-option",
        "AWS_REGION or --storage-option region=…",
        "AWS_REGION",
    ),
    (
        "leave storage_options out",
        "storage-option",
        "leave --storage-option out",
        "leave it out",
    ),
    (
        "; storage_options take ",
        "storage-option",
        "; --storage-option takes ",
        "; `partgrid copy --storage-option` takes ",
    ),
    (
        "no grid is registered: pg.sql(text, NAME=frame) and session.register(NAME, grid) name one",
        "grid",
        "--grid NAME=PATH names one",
        "--grid NAME=PATH names one",
    ),
    (
        "grids never change: CREATE OR REPLACE TABLE … AS makes a new one under the name",
        "output",
        "files are never changed: --output writes the answer to another one",
        "files are never changed",
    ),
];

/// The error as somebody who uses `verb` understands it.
pub(super) fn in_options(error: Error, verb: &str) -> Error {
    let command = super::Command::command();
    let verb = command.find_subcommand(verb);
    let has = |option: &str| {
        let mut options = verb
            .into_iter()
            .flat_map(|verb| verb.get_arguments())
            .filter_map(|argument| argument.get_long());
        options.any(|long| long == option)
    };
    let Some(hint) = error.hint() else {
        return error;
    };
    let said = WORDS
        .iter()
        .fold(hint.to_owned(), |hint, (words, option, with, without)| {
            hint.replace(words, if has(option) { with } else { without })
        });
    error.with_hint(said)
}
