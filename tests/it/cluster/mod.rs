//! Statements over tiles of several processes: each runs where the tiles are, and gives what one process would.

mod data;
mod member;

use std::sync::Arc;
use std::time::{Duration, Instant};

use partgrid::cluster::of_parts;
use partgrid::query::{Session, SessionOptions};

use member::{answer, cluster, near};

/// Each of them cut into stages in another way.
const STATEMENTS: [&str; 56] = [
    "SELECT id FROM floats WHERE f IN (SELECT f FROM floats WHERE id % 7 IN (0, 2)) ORDER BY id",
    "SELECT a.id FROM floats a JOIN (SELECT f FROM floats WHERE id % 7 = 0) b ON a.f = b.f ORDER BY 1",
    "SELECT id FROM floats WHERE f IN (SELECT -f FROM floats WHERE id % 7 < 3) ORDER BY id",
    "SELECT a.id FROM floats a JOIN floats b ON a.f = b.f WHERE b.id IN (502, 507, 511) ORDER BY a.id + b.id",
    "SELECT f + 0.0 AS f, count(*) FROM facts GROUP BY f + 0.0",
    "SELECT count(*) FROM (SELECT DISTINCT f FROM facts)",
    "SELECT id FROM facts WHERE id % 100 < 7 AND f IN (SELECT f FROM facts WHERE id % 1000 = 7)",
    "SELECT count(*) FROM facts a JOIN few ON a.f = few.k - 3.0",
    "SELECT count(*) FROM facts a JOIN facts b ON a.f = b.f WHERE a.id % 1000 < 5 AND b.id % 1000 < 9",
    "SELECT f, sum(id) FROM facts GROUP BY ROLLUP (f) HAVING f > 0",
    "SELECT g, sum(id) FROM facts GROUP BY g",
    "SELECT count(*) FROM facts",
    "SELECT count(*), min(id), max(id), sum(amount) FROM facts",
    "SELECT g, count(*), sum(amount), min(text), max(text) FROM facts GROUP BY g",
    "SELECT id, text FROM facts WHERE id % 1000 = 7",
    "SELECT id FROM facts WHERE text = 'text 5' ORDER BY id DESC LIMIT 5",
    "SELECT id, amount FROM facts ORDER BY amount, id LIMIT 20",
    "SELECT text, count(DISTINCT g) FROM facts GROUP BY text",
    "SELECT DISTINCT text FROM facts",
    "SELECT name, count(*) FROM facts JOIN names USING (g) GROUP BY name",
    "SELECT name, count(id) FROM names LEFT JOIN facts ON facts.g = names.g AND facts.id % 3 = 0 GROUP BY name",
    "SELECT count(*) FROM facts WHERE g IN (SELECT k FROM few)",
    "SELECT count(*) FROM facts WHERE NOT EXISTS (SELECT 1 FROM few WHERE k = g)",
    "SELECT g FROM names UNION ALL SELECT k FROM few",
    "SELECT g, count(*) FROM (SELECT g FROM names UNION ALL SELECT k FROM few) GROUP BY g",
    // One task makes an input, and all members the others.
    "SELECT g, count(*) FROM ((SELECT g FROM names ORDER BY g LIMIT 3) UNION ALL SELECT k FROM few) GROUP BY g",
    "SELECT g, count(*) FROM ((SELECT g FROM facts ORDER BY id DESC LIMIT 50) UNION ALL SELECT g FROM facts WHERE id % 3 = 0) GROUP BY g",
    "SELECT g FROM ((SELECT g FROM facts ORDER BY id LIMIT 9) UNION ALL SELECT g FROM names) ORDER BY g LIMIT 5",
    "SELECT count(*) FROM ((SELECT id FROM facts ORDER BY id LIMIT 9) UNION ALL SELECT g FROM names UNION ALL (SELECT k FROM few ORDER BY k LIMIT 2))",
    "SELECT f + 0.0 AS f, count(*) FROM ((SELECT f FROM floats ORDER BY id LIMIT 9) UNION ALL SELECT f FROM floats) GROUP BY f + 0.0",
    "SELECT g, sum(n) FROM (SELECT g, CAST(row_number() OVER (ORDER BY id) AS BIGINT) AS n FROM facts WHERE id % 50 = 1 UNION ALL SELECT g, g + 1 FROM names) GROUP BY g",
    "SELECT g FROM names UNION ALL SELECT 7",
    "SELECT name, n FROM names JOIN (SELECT g, max(id) AS n FROM ((SELECT g, id FROM facts ORDER BY amount, id LIMIT 99) UNION ALL SELECT k, k + 1 FROM few) GROUP BY g) USING (g)",
    "SELECT * FROM few",
    "SELECT count(*) FROM few CROSS JOIN names",
    "SELECT k, v FROM few JOIN (VALUES (1, 'one'), (2, 'two')) AS t(key, v) ON k = key",
    "SELECT id, row_number() OVER (PARTITION BY g ORDER BY id) AS n FROM facts WHERE id % 500 = 3",
    "SELECT g, id FROM (SELECT g, id, rank() OVER (PARTITION BY g ORDER BY amount DESC, id) AS r FROM facts) WHERE r = 1",
    "SELECT count(*) FROM facts WHERE id > (SELECT avg(id) FROM facts)",
    "SELECT g + id AS both, -g, text || '!' FROM facts WHERE id % 2000 = 11",
    "SELECT a.g, count(*) FROM facts a JOIN facts b ON a.id = b.id GROUP BY a.g",
    "SELECT max(id) - min(id) FROM facts GROUP BY id % 10 HAVING count(*) > 100",
    "WITH m AS (SELECT g, max(id) AS most FROM facts GROUP BY g) SELECT m.g, name, most FROM m JOIN names ON m.g = names.g",
    "SELECT g FROM facts EXCEPT SELECT k FROM few",
    "WITH RECURSIVE up(n) AS (SELECT 1 UNION ALL SELECT up.n + 1 FROM up JOIN few ON few.k = up.n) SELECT n, (SELECT count(*) FROM facts) FROM up",
    // A null on one side of NOT IN matters for all rows.
    "SELECT count(*) FROM facts WHERE g NOT IN (SELECT k FROM few)",
    // Joins without equal keys: one side is sent to all, or both to one where rows of both come out that have no partner.
    "SELECT a.g, b.g FROM names a JOIN names b ON a.g < b.g WHERE a.g > 4",
    "SELECT count(*), min(id), sum(k) FROM facts JOIN few ON g < k",
    "SELECT n.g, count(k) FROM names n LEFT JOIN few ON n.g < k GROUP BY n.g",
    "SELECT n.g, k FROM few RIGHT JOIN names n ON k > n.g + 1",
    "SELECT g FROM names WHERE EXISTS (SELECT 1 FROM few WHERE k > g)",
    "SELECT g FROM names WHERE NOT EXISTS (SELECT 1 FROM few WHERE k > g)",
    "SELECT k, g FROM few FULL JOIN names ON k > g + 1",
    "SELECT count(*), count(k), count(id), sum(id) FROM floats FULL JOIN few ON id < k + 102",
    "SELECT count(*), count(a.id), count(b.id), sum(a.id - b.id) FROM (SELECT id, g FROM facts WHERE id % 500 = 3) a FULL JOIN (SELECT id, g FROM facts WHERE id % 700 = 5) b ON a.g > b.g + 8 AND a.id < b.id",
    "SELECT g FROM names UNION ALL SELECT coalesce(id, -k) FROM few FULL JOIN floats ON k > id",
];

/// One process with the rows of all.
fn alone(seeds: &[u64]) -> Session {
    let session = Session::try_new(&SessionOptions::default().with_threads(2)).unwrap();
    for name in data::GRIDS {
        let parts: Vec<_> = seeds.iter().map(|seed| data::part(name, *seed)).collect();
        session
            .register(name, Arc::new(of_parts(&parts).unwrap()))
            .unwrap();
    }
    session
}

#[test]
fn each_statement_runs_where_the_tiles_are() {
    let folder = tempfile::tempdir().unwrap();
    let seeds = [5, 1, 3];
    let mut processes = cluster(folder.path(), &seeds, false);
    let session = alone(&seeds);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for sql in STATEMENTS {
        let expected = runtime.block_on(answer(&session, sql)).unwrap();
        for process in &mut processes {
            let got = process.sql(sql);
            assert_eq!(got.as_ref(), Ok(&expected), "{}: {sql}", process.uri);
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn statements_over_little_data_of_one_host_run_in_the_member_that_was_asked() {
    let folder = tempfile::tempdir().unwrap();
    let seeds = [5, 1, 3];
    let mut processes = near(folder.path(), &seeds);
    let session = alone(&seeds);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for sql in STATEMENTS {
        let expected = runtime.block_on(answer(&session, sql)).unwrap();
        for process in &mut processes {
            let plan = process.ask(&format!("explain {sql}"));
            assert!(!plan.contains("SpreadExec"), "{sql}: {plan}");
            let got = process.sql(sql);
            assert_eq!(got.as_ref(), Ok(&expected), "{}: {sql}", process.uri);
        }
    }
}

#[test]
fn one_two_and_five_members_answer_alike() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for seeds in [&[1][..], &[2, 1], &[4, 2, 1, 7, 3]] {
        let folder = tempfile::tempdir().unwrap();
        let mut processes = cluster(folder.path(), seeds, true);
        let session = alone(seeds);
        for sql in STATEMENTS {
            let expected = runtime.block_on(answer(&session, sql)).unwrap();
            let got = processes[0].sql(sql);
            assert_eq!(got.as_ref(), Ok(&expected), "{seeds:?}: {sql}");
        }
    }
}

#[test]
fn a_plan_says_which_member_reads_what() {
    let folder = tempfile::tempdir().unwrap();
    let mut processes = cluster(folder.path(), &[5, 1, 3], false);
    let plan = processes[1].ask("explain SELECT g, sum(id) FROM facts GROUP BY g");
    assert!(plan.contains("SpreadExec: members=3"), "{plan}");
    assert_eq!(plan.matches("GridScanExec").count(), 3, "{plan}");
    assert!(plan.contains("mode=Partial"), "{plan}");
}

#[test]
fn the_metrics_say_which_process_read_what() {
    let folder = tempfile::tempdir().unwrap();
    let seeds = [5, 1, 3];
    let mut processes = cluster(folder.path(), &seeds, false);
    let told = processes[0].ask("processes SELECT g, sum(amount) FROM facts GROUP BY g");
    let mut expected: Vec<String> = processes
        .iter()
        .zip(seeds)
        .map(|(process, seed)| {
            let rows = data::part("facts", seed).num_rows();
            format!("{} {rows} 0", process.id())
        })
        .collect();
    expected.sort();
    assert_eq!(told, expected.join(","));
}

#[test]
fn a_member_that_was_killed_is_an_error_within_seconds_and_never_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let mut processes = cluster(folder.path(), &[5, 1, 3], true);
    let sql = "SELECT count(*), sum(id) FROM facts WHERE id % 2 = 0";
    processes[0].sql(sql).unwrap();
    processes[2].signal("KILL");
    for _ in 0..5 {
        let begun = Instant::now();
        let lost = processes[0].sql(sql).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(10), "{lost}");
        assert!(
            lost.starts_with("WorkerLost") || lost.starts_with("PartitionLost"),
            "{lost}"
        );
        std::thread::sleep(Duration::from_millis(600));
    }
    // What it has itself, and what needs nobody, goes on.
    assert_eq!(processes[0].sql("SELECT 1 + 1").unwrap(), ["2"]);
}

#[test]
fn a_tile_of_a_member_that_was_dropped_is_lost_also_where_none_may_be_fetched() {
    let folder = tempfile::tempdir().unwrap();
    let mut processes = cluster(folder.path(), &[5, 1, 3], false);
    let sql = "SELECT count(*), sum(id) FROM facts WHERE id % 2 = 0";
    let expected = processes[0].sql(sql).unwrap();
    let uris: Vec<String> = processes.iter().map(|each| each.uri.clone()).collect();
    // It is there, but did not answer in time; then the others as well.
    for left in [2, 1] {
        std::fs::write(folder.path().join("members"), uris[..left].join("\n")).unwrap();
        processes[0].ask("refresh");
        let lost = processes[0].sql(sql).unwrap_err();
        assert!(lost.starts_with("PartitionLost"), "{lost}");
        assert!(uris[left..].iter().any(|uri| lost.contains(uri)), "{lost}");
        // That a part is missing is known by then.
        assert!(lost.contains("the 3 parts"), "{lost}");
    }
    std::fs::write(folder.path().join("members"), uris.join("\n")).unwrap();
    assert_eq!(processes[0].ask("refresh"), "done");
    assert_eq!(processes[0].sql(sql).unwrap(), expected);
}

#[test]
fn a_member_that_hangs_is_an_error_within_seconds_and_an_answer_once_it_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut processes = cluster(folder.path(), &[5, 1, 3], true);
    let sql = "SELECT g, count(*) FROM facts GROUP BY g";
    let expected = processes[0].sql(sql).unwrap();
    processes[1].signal("STOP");
    let begun = Instant::now();
    let answer = processes[0].sql(sql);
    assert!(begun.elapsed() < Duration::from_secs(20), "{answer:?}");
    match answer {
        // On a busy machine it may be no member any more; then its rows are read from the memory that it shares.
        Ok(rows) => assert_eq!(rows, expected),
        Err(lost) => assert!(
            lost.starts_with("WorkerLost") || lost.starts_with("PartitionLost"),
            "{lost}"
        ),
    }
    processes[1].signal("CONT");
    let patience = Instant::now();
    loop {
        match processes[0].sql(sql) {
            Ok(rows) => break assert_eq!(rows, expected),
            Err(error) => assert!(patience.elapsed() < Duration::from_secs(30), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_coordinator_that_was_killed_leaves_nothing_at_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut processes = cluster(folder.path(), &[5, 1, 3], true);
    let long = "SELECT count(*) FROM facts a, facts b WHERE a.id + b.id % 7 < a.g * b.id";
    processes[0].begin(&format!("sql {long}"));
    std::thread::sleep(Duration::from_millis(700));
    processes[0].signal("KILL");
    let patience = Instant::now();
    for process in &mut processes[1..] {
        while process.ask("memory") != "0" {
            assert!(patience.elapsed() < Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

#[test]
fn a_failing_statement_is_the_same_error_in_one_process_and_in_many() {
    let folder = tempfile::tempdir().unwrap();
    let seeds = [5, 1, 3];
    let mut processes = cluster(folder.path(), &seeds, false);
    let session = alone(&seeds);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for sql in [
        "SELECT sum(id * 9223372036854775807) FROM facts",
        "SELECT CAST(text AS BIGINT) FROM facts",
        "SELECT 1 / (g - g) FROM facts",
        "SELECT nothing FROM facts",
        "SELECT g FROM fact",
    ] {
        let expected = runtime.block_on(answer(&session, sql)).unwrap_err();
        let got = processes[0].sql(sql).unwrap_err();
        let kind = format!("{:?} ", expected.kind());
        assert!(got.starts_with(&kind), "{sql}: {got}, not {expected}");
    }
}
