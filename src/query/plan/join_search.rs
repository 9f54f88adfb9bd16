//! The order of joins that carries the fewest rows.
//!
//! Comes in: relations with estimated rows, and classes of columns that the query holds equal, with how many values each has. Goes out: a tree of joins. All
//! connected trees are looked at, by dynamic programming over sets of relations. Pure. Never here: plans, statistics.

/// More relations than this are left in the order of the text: sets of them are too many.
pub(super) const MAX_RELATIONS: usize = 10;

/// What looking up one row costs, in relation to carrying one on.
const COST_OF_PROBING: f64 = 0.1;

/// Columns that are equal in every row of the result.
#[derive(Debug, Clone, Default)]
pub(super) struct Class {
    /// For each relation that has such a column about how many values it has.
    pub(super) distinct: Vec<(usize, f64)>,
}

/// A tree of joins; the smaller side of each is the left one.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Tree {
    Relation(usize),
    Join(Box<Tree>, Box<Tree>),
}

/// One set of relations, joined as well as is known.
#[derive(Debug, Clone)]
struct Best {
    rows: f64,
    cost: f64,
    tree: Tree,
}

/// What is to be joined.
#[derive(Debug, Clone, Copy)]
pub(super) struct Relations<'a> {
    /// About how many rows each has.
    pub(super) rows: &'a [f64],
    pub(super) classes: &'a [Class],
    /// How many processes build the smaller side of each join, each all of it.
    pub(super) copies: f64,
}

/// The cheapest tree; `None` when the relations hang together by no equality, or are too many.
pub(super) fn search(relations: Relations<'_>) -> Option<Tree> {
    let rows = relations.rows;
    if rows.len() > MAX_RELATIONS {
        return None;
    }
    let all: usize = (1 << rows.len()) - 1;
    let mut best: Vec<Option<Best>> = vec![None; all + 1];
    for set in 1..=all {
        let found = if set.is_power_of_two() {
            let relation = set.trailing_zeros() as usize;
            rows.get(relation).map(|rows| Best {
                rows: *rows,
                cost: 0.0,
                tree: Tree::Relation(relation),
            })
        } else {
            cheapest(set, &best, relations)
        };
        if let Some(place) = best.get_mut(set) {
            *place = found;
        }
    }
    best.pop()?.map(|found| found.tree)
}

/// What a tree costs, by the same rules; `None` for a join without equality.
pub(super) fn cost(tree: &Tree, relations: Relations<'_>) -> Option<f64> {
    weighed(tree, relations).map(|(_, weighed)| weighed.cost)
}

fn weighed(tree: &Tree, relations: Relations<'_>) -> Option<(usize, Best)> {
    match tree {
        Tree::Relation(relation) => {
            let best = Best {
                rows: *relations.rows.get(*relation)?,
                cost: 0.0,
                tree: tree.clone(),
            };
            Some((1 << relation, best))
        }
        Tree::Join(left, right) => {
            let (one, left) = weighed(left, relations)?;
            let (other, right) = weighed(right, relations)?;
            let joined = join((one, &left), (other, &right), relations)?;
            Some((one | other, joined))
        }
    }
}

fn cheapest(set: usize, best: &[Option<Best>], relations: Relations<'_>) -> Option<Best> {
    let mut cheapest: Option<Best> = None;
    // The half with the lowest relation, so that no pair of halves comes twice.
    let lowest = set & set.wrapping_neg();
    let mut half = (set - 1) & set;
    while half > 0 {
        let rest = set & !half;
        if half & lowest != 0
            && let (Some(Some(one)), Some(Some(other))) = (best.get(half), best.get(rest))
            && let Some(joined) = join((half, one), (rest, other), relations)
            && cheapest
                .as_ref()
                .is_none_or(|known| joined.cost < known.cost)
        {
            cheapest = Some(joined);
        }
        half = (half - 1) & set;
    }
    cheapest
}

fn join(
    (one_set, one): (usize, &Best),
    (other_set, other): (usize, &Best),
    relations: Relations<'_>,
) -> Option<Best> {
    let Relations {
        rows,
        classes,
        copies,
    } = relations;
    let shared: Vec<(f64, f64)> = classes
        .iter()
        .filter_map(|class| Some((least(class, one_set)?, least(class, other_set)?)))
        .collect();
    if shared.is_empty() {
        return None;
    }
    let mut values: f64 = shared.iter().map(|(one, other)| one.max(*other)).product();
    if shared.len() > 1 {
        // Columns that are a key together have as many combinations as their relation has rows.
        let keys = |set| combinations(set, (one_set, other_set), rows, classes);
        let most = keys(one_set).min(keys(other_set));
        values = values.min(most.max(1.0));
    }
    let joined = one.rows * other.rows / values.max(1.0);
    let (small, large) = if one.rows <= other.rows {
        (one, other)
    } else {
        (other, one)
    };
    Some(Best {
        rows: joined.max(1.0),
        cost: one.cost + other.cost + joined + copies * small.rows + COST_OF_PROBING * large.rows,
        tree: Tree::Join(Box::new(small.tree.clone()), Box::new(large.tree.clone())),
    })
}

/// The fewest values that a relation of the set has in the class.
fn least(class: &Class, set: usize) -> Option<f64> {
    let within = class
        .distinct
        .iter()
        .filter(|(relation, _)| set & (1 << relation) != 0);
    within.map(|(_, values)| *values).reduce(f64::min)
}

/// The rows of the smallest relation of the set that has a column of every class that both sets share.
fn combinations(set: usize, (one, other): (usize, usize), rows: &[f64], classes: &[Class]) -> f64 {
    let is_shared = |class: &&Class| least(class, one).is_some() && least(class, other).is_some();
    let shared: Vec<&Class> = classes.iter().filter(is_shared).collect();
    let has_all = |relation: usize| {
        let has = |class: &&Class| class.distinct.iter().any(|(member, _)| *member == relation);
        shared.iter().all(has)
    };
    let relations =
        (0..rows.len()).filter(|relation| set & (1 << relation) != 0 && has_all(*relation));
    relations
        .filter_map(|relation| rows.get(relation))
        .copied()
        .fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(distinct: &[(usize, f64)]) -> Class {
        Class {
            distinct: distinct.to_vec(),
        }
    }

    fn relations<'a>(rows: &'a [f64], classes: &'a [Class], copies: f64) -> Relations<'a> {
        Relations {
            rows,
            classes,
            copies,
        }
    }

    #[test]
    fn what_every_process_builds_is_small() {
        // Few rows of the two large ones match, but one of them is built for that; the small one drops half of its neighbour.
        let rows = [1e6, 1e6, 100.0];
        let classes = [
            class(&[(0, 1e8), (1, 1e8)]),
            class(&[(1, 200.0), (2, 100.0)]),
        ];
        let first = |copies: f64| match search(relations(&rows, &classes, copies)).unwrap() {
            Tree::Join(left, right) => [*left, *right],
            relation => panic!("{relation:?}"),
        };
        assert!(first(1.0).contains(&Tree::Relation(2)));
        assert!(first(3.0).contains(&Tree::Relation(0)));
    }

    #[test]
    fn a_small_filtered_relation_meets_its_neighbour_before_the_large_one() {
        // 0: orders, 1: suppliers, 2: two of 25 nations.
        let rows = [6e6, 1e4, 2.0];
        let classes = [class(&[(0, 1e4), (1, 1e4)]), class(&[(1, 25.0), (2, 25.0)])];
        let tree = search(relations(&rows, &classes, 1.0)).unwrap();
        let small = Tree::Join(Box::new(Tree::Relation(2)), Box::new(Tree::Relation(1)));
        assert_eq!(
            tree,
            Tree::Join(Box::new(small), Box::new(Tree::Relation(0)))
        );
    }

    #[test]
    fn relations_without_equality_have_no_tree() {
        assert_eq!(search(relations(&[1.0, 2.0], &[], 1.0)), None);
    }

    #[test]
    fn the_tree_that_is_found_costs_no_more_than_that_of_the_text() {
        let rows = [5e5, 100.0, 3e3, 7e4];
        let classes = [
            class(&[(0, 5e4), (1, 100.0)]),
            class(&[(0, 3e3), (2, 3e3)]),
            class(&[(2, 10.0), (3, 10.0)]),
        ];
        let text = (1..4).fold(Tree::Relation(0), |tree, relation| {
            Tree::Join(Box::new(tree), Box::new(Tree::Relation(relation)))
        });
        let found = search(relations(&rows, &classes, 1.0)).unwrap();
        let of = relations(&rows, &classes, 1.0);
        assert!(cost(&found, of) <= cost(&text, of));
    }
}
