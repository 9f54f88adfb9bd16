//! The rules of the protocol, each with a name and a sentence.
//!
//! Never here: how a rule is tested.

use std::fmt;

macro_rules! rules {
    ($($name:ident $text:literal),* $(,)?) => {
        /// A rule of the protocol. `T` rules are about a section, `D` rules about one dictionary, `X` rules about all ranks together.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rule {
            $(#[doc = $text] $name),*
        }

        impl Rule {
            /// All rules, in order.
            pub const ALL: &[Rule] = &[$(Rule::$name),*];

            /// The name, such as `D5`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Rule::$name => stringify!($name)),* }
            }

            /// What the rule says.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Rule::$name => $text),* }
            }
        }
    };
}

rules! {
    T1 "A section is a dictionary.",
    T2 "A section has the keys `__version__`, `buffer` and `dim_data`, and no other.",
    T3 "`__version__` is a text of three plain numbers, of a known version.",
    T4 "`buffer` has the buffer interface.",
    T5 "`dim_data` is a tuple.",
    T6 "`dim_data` holds dictionaries.",
    T7 "There are as many dictionaries as the buffer has dimensions.",
    D1 "`dist_type` is one of the version: `b`, `c`, `u`; in 0.9 also `n`.",
    D2 "An empty dictionary is an alias in 0.10 only.",
    D3 "`size` is an integer of at least 0.",
    D4 "`proc_grid_size` is at least 1, and `proc_grid_rank` at least 0 and less.",
    D5 "The bounds of a block are integers, 0 <= start <= stop <= size.",
    D6 "The buffer has as many elements along the dimension as the dictionary says.",
    D7 "`padding` is a tuple of two integers of at least 0.",
    D8 "`padding` fits in the buffer.",
    D9 "`periodic` is a bool, where it means something.",
    D10 "A cyclic dimension starts at rank times block size, which is at least 1.",
    D11 "`indices` is a buffer of integers in one dimension, each there once.",
    D12 "`one_to_one` is a bool.",
    D13 "Integers are plain integers.",
    X1 "There are as many sections as the process grid has places.",
    X2 "Sections stand in row-major order of their grid ranks.",
    X3 "Keys of a whole dimension are the same on all ranks.",
    X4 "Sections with the same grid rank have the same dictionary, outer padding apart.",
    X5 "What the ranks own meets, begins at 0 and ends at the size.",
    X6 "Communication padding is as wide on both sides of a border.",
    X7 "Communication padding is at most as wide as what the neighbour owns.",
    X8 "What all ranks own adds up to the size.",
    X9 "With `one_to_one`, no index is on two grid ranks.",
    X11 "All sections have one element format.",
    X12 "In 0.9, `padding` stands on all ranks or on none.",
    X13 "All sections state one version.",
    X14 "The outer widths of a periodic dimension are the same.",
    X15 "An array without dimensions is on one process.",
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
